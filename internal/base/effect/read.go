package effect

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// Read reads the lines of a run. A last line that is not whole was being written when the run was killed, and is left
// out.
func Read(r io.Reader) ([]Line, error) {
	var lines []Line
	in := bufio.NewReader(r)
	for n := 1; ; n++ {
		data, err := in.ReadBytes('\n')
		if err == io.EOF {
			return lines, nil
		}
		if err != nil {
			return nil, err
		}
		var line Line
		if err := json.Unmarshal(data, &line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		lines = append(lines, line)
	}
}
