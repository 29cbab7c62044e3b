package flow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
)

// A journal's text is a snapshot, as indented JSON and a line feed, and after it
// one line for each change since:
//
//	<length of the JSON> <checksum> <JSON of a Snapshot with the changed records>
//
// The checksum is the CRC-32C of the line's number, counted from 1, and the
// JSON. The JSON has no line feed in it. A writer makes a line durable before it
// writes the next one, so only the last can be incomplete after a crash.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func lineSum(number int, change []byte) string {
	sum := crc32.Update(0, castagnoli, strconv.AppendInt(nil, int64(number), 10))
	return fmt.Sprintf("%08x", crc32.Update(sum, castagnoli, change))
}

// encodeLine is the line of a change.
func encodeLine(number int, change Snapshot) ([]byte, error) {
	type plain Snapshot // the line has a checksum of its own
	data, err := json.Marshal(plain(change))
	if err != nil {
		return nil, fmt.Errorf("encode the journal: %w", err)
	}
	line := append(strconv.AppendInt(nil, int64(len(data)), 10), ' ')
	line = append(append(line, lineSum(number, data)...), ' ')
	return append(append(line, data...), '\n'), nil
}

// encodeWhole is a journal's text without changes.
func encodeWhole(s Snapshot) ([]byte, error) {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the journal: %w", err)
	}
	return append(data, '\n'), nil
}

// decodeText reads a journal's text.
func decodeText(text []byte) (Snapshot, error) {
	head, lines := split(text)
	var s Snapshot
	if err := json.Unmarshal(head, &s); err != nil {
		return Snapshot{}, err
	}
	for number := 1; len(lines) > 0; number++ {
		change, rest, err := decodeLine(number, lines)
		if err != nil && torn(lines) {
			break
		}
		if err != nil {
			return Snapshot{}, fmt.Errorf("change %d after its snapshot: %w", number, err)
		}
		s.apply(change)
		lines = rest
	}
	return s, nil
}

// split finds where the snapshot ends: a line that begins with a digit is no part of indented JSON. What is not so
// written is a snapshot as a whole.
func split(text []byte) (head, lines []byte) {
	end := bytes.Index(text, []byte("\n}\n"))
	if end < 0 {
		return text, nil
	}
	end += len("\n}\n")
	if end == len(text) || text[end] == ' ' || text[end] == '{' {
		return text, nil
	}
	return text[:end], text[end:]
}

// decodeLine reads the first line and returns what follows it.
func decodeLine(number int, lines []byte) (change Snapshot, rest []byte, err error) {
	size, body, _ := bytes.Cut(lines, []byte(" "))
	sum, body, ok := bytes.Cut(body, []byte(" "))
	length, sizeErr := strconv.ParseUint(string(size), 10, 31)
	if !ok || sizeErr != nil || uint64(len(body)) <= length || body[length] != '\n' {
		return change, nil, errors.New("it is not as long as it says")
	}
	if string(sum) != lineSum(number, body[:length]) {
		return change, nil, errSum
	}
	type plain Snapshot
	var p plain
	if err := json.Unmarshal(body[:length], &p); err != nil {
		return change, nil, err
	}
	if change = Snapshot(p); change.Format > Format {
		return change, nil, &FormatError{Format: change.Format}
	}
	return change, body[length+1:], change.checkStates()
}

// torn reports whether the last line is what a crash leaves of one: it ends early, or blocks of it were not written and
// read as zeros. What ends in a line feed and has none of that was written to its end and is damaged, as is what
// another line follows.
func torn(lines []byte) bool {
	zeros := make([]byte, 8) // a flipped bit makes one at most
	switch bytes.IndexByte(lines, '\n') {
	case -1:
		return !endsOnly(lines)
	case len(lines) - 1:
		return bytes.HasPrefix(lines, zeros[:1]) || bytes.Contains(lines, zeros)
	default:
		return false
	}
}

// endsOnly reports whether a line is all there but for its line feed, in whose place something else is.
func endsOnly(line []byte) bool {
	size, body, _ := bytes.Cut(line, []byte(" "))
	_, body, _ = bytes.Cut(body, []byte(" "))
	length, err := strconv.ParseUint(string(size), 10, 31)
	return err == nil && uint64(len(body)) > length && body[length] != 0
}

// apply brings changed records into s.
func (s *Snapshot) apply(change Snapshot) {
	if s.Steps == nil {
		s.Steps = make(map[string]Record, len(change.Steps))
	}
	s.Format, s.Graph, s.Run, s.Updated = change.Format, change.Graph, change.Run, change.Updated
	for name, rec := range change.Steps {
		s.Steps[name] = rec
	}
}
