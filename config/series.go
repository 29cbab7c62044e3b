package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/blang/semver/v4"
)

// Series is a minor version: 1.35 of v1.35.4.
type Series struct{ Major, Minor uint64 }

// SeriesOf is the series of a version.
func SeriesOf(v semver.Version) Series { return Series{v.Major, v.Minor} }

// String is "1.35".
func (s Series) String() string { return fmt.Sprintf("%d.%d", s.Major, s.Minor) }

func (s Series) compare(to Series) int {
	return cmp.Or(cmp.Compare(s.Major, to.Major), cmp.Compare(s.Minor, to.Minor))
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Series) UnmarshalText(text []byte) error {
	major, minor, _ := strings.Cut(string(text), ".")
	var err error
	if s.Major, err = strconv.ParseUint(major, 10, 16); err == nil {
		s.Minor, err = strconv.ParseUint(minor, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%q is not a minor version: write it in quotes, like \"1.35\"", text)
	}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (s Series) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Range are minor versions from the first to the last, both included.
type Range struct{ First, Last Series }

// UnmarshalText implements encoding.TextUnmarshaler: "1.30-1.35", or one series.
func (r *Range) UnmarshalText(text []byte) error {
	first, last, is := strings.Cut(string(text), "-")
	if !is {
		last = first
	}
	if err := r.First.UnmarshalText([]byte(first)); err != nil {
		return err
	}
	if err := r.Last.UnmarshalText([]byte(last)); err != nil {
		return err
	}
	if r.Last.compare(r.First) < 0 {
		return fmt.Errorf("%q ends before it begins", text)
	}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (r Range) MarshalText() ([]byte, error) {
	if r.First == r.Last {
		return r.First.MarshalText()
	}
	return []byte(r.First.String() + "-" + r.Last.String()), nil
}

// String is "v1.30 to v1.35".
func (r Range) String() string {
	if r.First == r.Last {
		return "v" + r.First.String()
	}
	return fmt.Sprintf("v%s to v%s", r.First, r.Last)
}

func within(ranges []Range, s Series) bool {
	return slices.ContainsFunc(ranges, func(r Range) bool { return r.First.compare(s) <= 0 && s.compare(r.Last) <= 0 })
}

// listed is "v1.10, v1.13".
func listed(ranges []Range) string {
	var all []string
	for _, r := range ranges {
		all = append(all, r.String())
	}
	return strings.Join(all, ", ")
}

// Date is a day.
type Date struct{ time.Time }

// String is "2026-11-25".
func (d Date) String() string { return d.Format(time.DateOnly) }

// UnmarshalJSON implements json.Unmarshaler.
func (d *Date) UnmarshalJSON(data []byte) error {
	var text string
	err := json.Unmarshal(data, &text)
	if err == nil {
		d.Time, err = time.Parse(time.DateOnly, text)
	}
	if err != nil {
		return fmt.Errorf("%s is not a day: write it in quotes, like \"2026-11-25\"", data)
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (d Date) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }
