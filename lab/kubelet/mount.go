package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// errAgain marks a failure that is temporary in the first moments of a Pod: an object that it refers to has not been
// read yet, or the node authorizer sees the Pod a little after the kubelet.
var errAgain = errors.New("not yet")

// firstMoments is how long such a failure is not reported.
const firstMoments = 3 * time.Second

// mount writes the volumes, and waits for the objects that they need.
func (p *pod) mount(ctx context.Context) bool {
	began, said := time.Now(), ""
	retry := backOff{least: 100 * time.Millisecond, most: 2 * time.Second} // for tokens, which no watch reports
	again := time.NewTimer(retry.next())
	defer again.Stop()
	for {
		changed := p.changed.next()
		_, err := p.syncVolumes(ctx)
		if err == nil {
			p.mu.Lock()
			p.mounted, p.waiting = true, ""
			p.mu.Unlock()
			p.changed.raise()
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		worthSaying := !errors.Is(err, errAgain) || time.Since(began) > firstMoments
		if message := err.Error(); worthSaying && message != said {
			said = message
			p.setWaiting(message)
			p.event(corev1.EventTypeWarning, "FailedMount", "%s", message)
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		case <-again.C:
			again.Reset(retry.next())
		}
	}
}

// refreshVolumes keeps the volumes and tokens up to date.
func (p *pod) refreshVolumes(ctx context.Context) {
	for {
		changed := p.changed.next()
		due, err := p.syncVolumes(ctx)
		if err != nil && ctx.Err() == nil { // the mounted files stay, as on a real node
			p.log.Warn("the Pod's volumes were not brought up to date", "reason", err)
		}
		if !sleepUntil(ctx, due, changed) {
			return
		}
	}
}

// syncVolumes updates the volumes, and returns when to call it again. For a Pod without processes it only checks that
// the named objects exist.
func (p *pod) syncVolumes(ctx context.Context) (due time.Duration, err error) {
	due = syncEvery
	api := p.seen()
	for _, v := range api.Spec.Volumes {
		files, next, err := p.filesOf(ctx, v)
		if err != nil {
			return due, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err)
		}
		if next > 0 {
			due = min(due, next)
		}
		if !p.mapped() {
			continue
		}
		if v.EmptyDir != nil {
			if err := os.MkdirAll(p.volumeDir(v.Name), 0o700); err != nil {
				return due, fmt.Errorf("create the folder of volume %q: %w", v.Name, err)
			}
		}
		if files != nil {
			if err := p.writeVolume(v.Name, files); err != nil {
				return due, err
			}
		}
	}
	if p.mapped() && p.hasIdentity() {
		files, next, err := p.identity(ctx)
		if err != nil {
			return due, fmt.Errorf("kubeconfig of service account %q: %w", serviceAccount(api), err)
		}
		due = min(due, next)
		if err := p.writeVolume(identityVolume, files); err != nil {
			return due, err
		}
	}
	return due, nil
}

// writeVolume writes a volume's files where they differ from the last ones.
func (p *pod) writeVolume(name string, files map[string][]byte) error {
	p.mu.Lock()
	last, written := p.volumes[name]
	p.mu.Unlock()
	if written && maps.EqualFunc(last, files, bytes.Equal) {
		return nil
	}
	if err := replaceFiles(p.volumeDir(name), files); err != nil {
		return fmt.Errorf("write volume %q: %w", name, err)
	}
	p.mu.Lock()
	p.volumes[name] = files
	p.mu.Unlock()
	return nil
}

func (p *pod) volumeDir(name string) string {
	if p.kept[name] {
		return filepath.Join(p.keptDir(), name)
	}
	return filepath.Join(p.dir, "volumes", name)
}
