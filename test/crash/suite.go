package crash

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"
)

// ErrTime means that the time for new cases is up.
var ErrTime = errors.New("the time for new cases is up: run it again to continue")

// Choice is which cases are run.
type Choice struct {
	Only  *regexp.Regexp // of the id
	Again bool           // also those that failed or were missed
	For   time.Duration  // no case begins later; 0: any time
}

// Effects are those of all stages, as their undisturbed runs recorded them.
func (s *Suite) Effects() ([]Effect, error) {
	var all []Effect
	for _, stage := range Stages() {
		ref, _, err := s.reference(stage.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, ref.Effects...)
	}
	if len(all) == 0 {
		return nil, errors.New("the undisturbed runs recorded no effect")
	}
	return all, nil
}

// RunAll runs every chosen case that the ledger has no result of.
func (s *Suite) RunAll(ctx context.Context, cases []Case, choice Choice) error {
	began := time.Now()
	for i, c := range cases {
		if !choice.Only.MatchString(c.ID) {
			continue
		}
		if e, ok := s.Ledger.Last(c.ID); ok && !(choice.Again && (e.Result == Bad || e.Result == Missed)) {
			continue
		}
		if choice.For > 0 && time.Since(began) > choice.For {
			return ErrTime
		}
		e, err := s.Try(ctx, c)
		if err != nil {
			return fmt.Errorf("case %q: %w", c.ID, err)
		}
		if err := s.Ledger.Add(e); err != nil {
			return err
		}
		s.Say("%d of %d  %-7s %5.0fs  %2d kills  %s", i+1, len(cases), e.Result, e.Seconds, e.Kills, c.ID)
		for _, finding := range e.Findings {
			s.Say("    %s", finding)
		}
	}
	return nil
}
