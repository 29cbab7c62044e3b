package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// sumRule begins a sum and names how it is made: SHA-256 over the canonical
// JSON of the journal without its sum. That holds for members that this
// program does not know, too, and whatever the white space is.
const sumRule = "sha256:"

// errSum says that the journal is not what was written. It parses, so what is
// wrong with it is the content, of an output as well as of a state.
var errSum = errors.New("its content does not match its sum: a bit changed on the disk, or it was edited " +
	"(an edit that is meant counts once the member \"sum\" is taken out)")

// MarshalJSON adds the sum.
func (s Snapshot) MarshalJSON() ([]byte, error) {
	type plain Snapshot // without this method
	data, err := json.Marshal(plain(s))
	if err != nil {
		return nil, err
	}
	sum, err := sumOf(data)
	if err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		plain
		Sum string `json:"sum"`
	}{plain(s), sum})
}

// sumOf is the sum of a journal with or without one.
func sumOf(data []byte) (string, error) {
	v, err := parse(data)
	if err != nil {
		return "", err
	}
	members, ok := v.(map[string]any)
	if !ok {
		return "", errors.New("it is not a JSON object")
	}
	delete(members, "sum")
	bare, err := json.Marshal(members)
	if err != nil {
		return "", err
	}
	return sumRule + digest(bare), nil
}

// checkSum compares a journal with its sum. One without was written before
// there were sums, and is taken as it is.
func checkSum(data []byte, sum *string) error {
	switch {
	case sum == nil:
		return nil
	case !strings.HasPrefix(*sum, sumRule):
		return fmt.Errorf("%w (%q is no sum of a kind that this program knows)", errSum, *sum)
	}
	is, err := sumOf(data)
	if err != nil {
		return err
	}
	if is != *sum {
		return errSum
	}
	return nil
}
