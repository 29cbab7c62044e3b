package serve

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
)

// most is how much of a file is read at once.
const most = 1 << 20

// tail reads the whole lines of a file from a position on, some at a time. next is the position behind them: reading
// goes on from there. A position that is not at the beginning of a line counts as the beginning of the file, as does
// one behind its end: the file is another one then.
func tail(path string, from int64) (lines [][]byte, next int64, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, from, err
	}
	defer file.Close()
	if from < 0 || from > 0 && !behindALine(file, from) {
		from = 0
	}
	data := make([]byte, most)
	n, err := file.ReadAt(data, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, from, err
	}
	data = data[:n]
	end := bytes.LastIndexByte(data, '\n') + 1
	if end == 0 && n == most { // a line that nothing of this program writes
		return nil, from + int64(n), nil
	}
	for line := range bytes.Lines(data[:end]) {
		lines = append(lines, line)
	}
	return lines, from + int64(end), nil
}

// behindALine reports whether a position is behind the end of a line.
func behindALine(file *os.File, at int64) bool {
	var before [1]byte
	n, _ := file.ReadAt(before[:], at-1)
	return n == 1 && before[0] == '\n'
}
