package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/releaseutil"
	"helm.sh/helm/v3/pkg/storage/driver"
)

// abandonedAfter is how long a record of another process's operation must be unchanged before that process counts as
// ended. Between the record "pending" and the one that ends it, Helm writes nothing; by default it gives up after five
// minutes (--timeout) and says so in the record. One more is for the request itself.
const abandonedAfter = hookTimeout + time.Minute

// BusyError says that another process may be working on a release. Nothing was done to it.
type BusyError struct {
	Release, Namespace, Status string
	Revision                   int
	// by the API server's clock; from Until on, a record that is still the same is that of an ended process
	Since, Until time.Time
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("revision %d of helm release %s in namespace %s is %s since %s, and this run did not begin that: "+
		"whoever did is waited for; unless the record changes, they count as dead from %s on",
		e.Revision, e.Release, e.Namespace, e.Status, e.Since.Local().Format(time.TimeOnly),
		e.Until.Local().Format(time.TimeOnly))
}

// unfinished reports whether a status is one that an operation is to change again.
func unfinished(s release.Status) bool { return s.IsPending() || s == release.StatusUninstalling }

// clear prepares an install or upgrade and returns the last revision that there is then, nil for none. Helm itself
// refuses to touch a release whose last operation never ended ("another operation is in progress"). With a good
// revision behind it the release goes back to that, otherwise it is removed.
func (h *Helm) clear(ctx context.Context, say func(string, ...any), w Wanted) (*release.Release, error) {
	history, err := h.config.Releases.History(w.Name)
	if errors.Is(err, driver.ErrReleaseNotFound) || err == nil && len(history) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read helm release %s in namespace %s: %w", w.Name, h.namespace, err)
	}
	releaseutil.SortByRevision(history)
	last := history[len(history)-1]
	if !unfinished(last.Info.Status) && last.Info.Status != release.StatusUninstalled {
		return last, nil
	}
	r, still, err := h.still(ctx, last.Name, last.Version)
	if err != nil {
		return nil, err
	}
	if last.Info.Status == release.StatusUninstalled && r.owner == h.records.owner && r.recovered != "" {
		say("release %s was removed by an interrupted run; installing it again", w.Name)
		*w.Recovered, h.records.recovered = r.recovered, r.recovered
		return nil, h.remove(w.Name, false)
	}
	whose, err := h.abandoned(last, r, still)
	if err != nil {
		return nil, err
	}
	good := 0
	if last.Info.Status == release.StatusPendingUpgrade || last.Info.Status == release.StatusPendingRollback {
		good = lastGood(history)
	}
	then := "removing it before it is installed again"
	if good > 0 {
		then = fmt.Sprintf("rolling it back to revision %d", good)
	}
	why := fmt.Sprintf("release %s was left %s at revision %d by %s; %s", w.Name, last.Info.Status, last.Version, whose,
		then)
	if err := h.recovering(ctx, say, w, why); err != nil {
		return nil, err
	}
	if good > 0 {
		rollback := action.NewRollback(h.config)
		rollback.Version, rollback.Timeout, rollback.MaxHistory = good, hookTimeout, keptRevisions
		if err := rollback.Run(w.Name); err != nil {
			return nil, fmt.Errorf("roll helm release %s back to revision %d: %w", w.Name, good, err)
		}
		return h.config.Releases.Last(w.Name)
	}
	// The record goes last: should this run end here, the next one reads in it why the release is installed again.
	if last.Info.Status != release.StatusUninstalled {
		if err := h.remove(w.Name, true); err != nil {
			return nil, err
		}
	}
	return nil, h.remove(w.Name, false)
}

// remove removes a release, or what is left of it, with its records or without them.
func (h *Helm) remove(name string, keepRecords bool) error {
	uninstall := action.NewUninstall(h.config)
	uninstall.Timeout, uninstall.Wait, uninstall.KeepHistory = hookTimeout, true, keepRecords
	if _, err := uninstall.Run(name); err != nil {
		return fmt.Errorf("remove helm release %s: %w", name, err)
	}
	return nil
}

// abandoned names the process that left a release unfinished, or removed it and left its records. As long as that may
// not be so the error is a *BusyError. A record of ours is of an ended run: there is no other run of ours at the same
// time. One of another process may be in progress until it is unchanged for longer than Helm works.
func (h *Helm) abandoned(last *release.Release, r ReleaseRecord, still time.Duration) (whose string, err error) {
	switch {
	case r.owner == h.records.owner:
		return "an interrupted run", nil
	case last.Info.Status == release.StatusUninstalled:
		return "helm or a run with another state folder", nil
	case still < abandonedAfter:
		return "", &BusyError{
			Release: last.Name, Namespace: h.namespace, Status: last.Info.Status.String(), Revision: last.Version,
			Since: r.Written, Until: r.Written.Add(abandonedAfter),
		}
	}
	return fmt.Sprintf("helm or a run with another state folder, without a change for %s", still), nil
}

// still finds how long the record of a revision has been as it is, by the API server's clock.
func (h *Helm) still(ctx context.Context, name string, revision int) (ReleaseRecord, time.Duration, error) {
	all, err := h.cluster.ReleaseRecords(ctx, h.namespace, name)
	if err != nil {
		return ReleaseRecord{}, 0, err
	}
	now, err := h.cluster.Clock(ctx)
	if err != nil {
		return ReleaseRecord{}, 0, fmt.Errorf("find out how old the records of helm release %s are: %w", name, err)
	}
	for _, r := range all {
		if r.Revision != revision {
			continue
		}
		if r.Written.IsZero() {
			r.Written = now // it does not say, so it may be new
		}
		return r, now.Sub(r.Written), nil
	}
	return ReleaseRecord{}, 0, fmt.Errorf("revision %d of helm release %s has just gone", revision, name)
}

// canStay reports whether a release that is deployed as it is wanted can stay. It cannot where a workload of it is
// gone, or never became ready: applying it again puts back what was changed in its objects. One that was deployed just
// now is given time.
func (h *Helm) canStay(ctx context.Context, say func(string, ...any), w Wanted, r *Release) (bool, error) {
	state, err := w.State(r)
	if err != nil {
		return false, err
	}
	if state.Gone {
		say("release %s is deployed but parts of it are gone; applying it again", w.Name)
		return false, nil
	}
	if state.Unready != "" && *w.Recovered == "" {
		_, still, err := h.still(ctx, w.Name, r.Revision)
		if err != nil {
			return false, err
		}
		if still >= abandonedAfter {
			why := fmt.Sprintf("release %s has been deployed at revision %d for %s and is not ready (%s); applying it again",
				w.Name, r.Revision, still, state.Unready)
			return false, h.recovering(ctx, say, w, why)
		}
	}
	say("release %s is deployed already at chart version %s", w.Name, w.Chart.Metadata.Version)
	return true, nil
}

// recovering says that a release is recovered and writes it into every record from here on. Once is enough in a run:
// what is unfinished again was left by another process, or is a reason to look.
func (h *Helm) recovering(ctx context.Context, say func(string, ...any), w Wanted, why string) error {
	if was := *w.Recovered; was != "" {
		return fmt.Errorf("%s is needed again, and was done once in this run (%s): see who else works on it (helm history "+
			"%s -n %s) and run again",
			why, was, w.Name, h.namespace)
	}
	at, err := h.cluster.Clock(ctx)
	if err != nil {
		return err
	}
	say("%s", why)
	*w.Recovered = at.UTC().Format(time.RFC3339) + ": " + why
	h.records.recovered = *w.Recovered
	return nil
}
