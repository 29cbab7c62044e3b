package hetzner

import (
	"context"
	"fmt"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Failure is an action on a server that Hetzner began and could not finish.
type Failure struct {
	Command  string
	Server   int64 // its ID
	Code     string
	Message  string
	Finished time.Time
}

// failuresAsked is how many of a project's failed actions are looked at, the newest.
const failuresAsked = 25

// Failures lists the newest failed actions on servers of the project, those that began since a time.
func Failures(ctx context.Context, c *hcloud.Client, since time.Time) ([]Failure, error) {
	actions, _, err := c.Server.Action.List(ctx, hcloud.ActionListOpts{
		ListOpts: hcloud.ListOpts{PerPage: failuresAsked}, Status: []hcloud.ActionStatus{hcloud.ActionStatusError},
		Sort: []string{"id:desc"},
	})
	if err != nil {
		return nil, fmt.Errorf("ask for failed actions: %w", explain(err))
	}
	var failed []Failure
	for _, a := range actions {
		if a.Started.Before(since) {
			continue
		}
		for _, r := range a.Resources {
			if r.Type == hcloud.ActionResourceTypeServer {
				failed = append(failed, Failure{Command: a.Command, Server: r.ID, Code: a.ErrorCode, Message: a.ErrorMessage,
					Finished: a.Finished})
			}
		}
	}
	return failed, nil
}
