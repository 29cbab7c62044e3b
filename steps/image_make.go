package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/factory"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

const (
	// imageLookEvery is short because what it waits for, this run's own work, takes seconds.
	imageLookEvery = 500 * time.Millisecond
	// imageOthersEvery is for what others make: a look is up to four requests, they may take all of IMAGE_TIMEOUT, and
	// Hetzner answers 3600 requests in an hour to all who have the token.
	imageOthersEvery = 5 * time.Second
	// imageStillEvery is how often the upload says that it still continues: writing the disk takes minutes without output.
	imageStillEvery = 30 * time.Second
	// tidyWithin bounds the wait for temporary servers to go. It is part of the step's overhead.
	tidyWithin = time.Minute
	// tidyInHaste is for a run that is being interrupted, whose grace is a second.
	tidyInHaste = 900 * time.Millisecond
)

// imageMaker finds or makes the image of one architecture. It may be killed at any time, and another run may be at the
// same work: what each has at Hetzner carries its run's identity.
type imageMaker struct {
	*Set
	say                flow.Say
	run                string // this run's identity
	schematic          factory.Schematic
	schematicID        string
	schematicName      string // of a worker pool's; empty: the control plane's
	offer              Placement
	name, architecture string

	found hetzner.Image // by look; zero: there is none, and no process is creating it
	// what the look has just found to be temporary, for the sweep that follows it; nil: it did not look
	uploads *[]hetzner.Upload
	made    int64 // by this run; 0: none
}

// ensure ends with exactly one available image and nothing temporary of this run.
func (m *imageMaker) ensure(ctx context.Context) (Image, error) {
	m.say("looking for image %s for %s", m.name, m.architecture)
	deadline := time.Now().Add(m.cfg.ImageTimeout.D())
	for {
		w := wait.Wait{What: "image " + m.name, Within: time.Until(deadline), Every: imageOthersEvery}
		if m.made != 0 {
			w.Every = imageLookEvery
		}
		if err := w.Until(ctx, m.say, m.look); err != nil {
			return Image{}, err
		}
		if m.found.ID != 0 {
			break
		}
		if err := m.tidy(ctx); err != nil {
			return Image{}, err
		}
		if err := m.upload(ctx, deadline); err != nil {
			return Image{}, m.tidied(ctx, err)
		}
	}
	file, _ := m.sources.SchematicFile(m.schematicName)
	if m.found.Schematic != "" && m.found.Schematic != hetzner.SchematicLabel(m.schematicID) {
		return Image{}, fmt.Errorf("%s was made from schematic %s…, and %s is schematic %s now: give the image another "+
			"IMAGE_NAME, "+
			"or delete that snapshot to have it made again", m.found, m.found.Schematic, file.Name, m.schematicID)
	}
	return Image{ID: m.found.ID, Name: m.name, Architecture: m.architecture, Schematic: m.schematicName}, m.tidy(ctx)
}

// look finds the image, or finds that it has to be made. What is still on its way is missing.
func (m *imageMaker) look(ctx context.Context) (missing string, err error) {
	m.found, m.uploads = hetzner.Image{}, nil
	found, err := hetzner.FindImages(ctx, m.tools.Hetzner, m.name, m.architecture)
	switch {
	case errors.Is(err, hetzner.ErrToken):
		return "", wait.Final(err)
	case err != nil:
		return "", err
	case m.made != 0 && !slices.ContainsFunc(found, func(one hetzner.Image) bool { return one.ID == m.made }):
		return m.unlisted(ctx)
	case len(found) == 0:
		return m.others(ctx)
	case len(found) > 1:
		return m.several(ctx, found)
	}
	one := found[0]
	switch {
	case one.Available():
		m.found = one
		return "", nil
	case one.Creating():
		progress, err := hetzner.Creation(ctx, m.tools.Hetzner, one.ID)
		var failed *hetzner.CreationError
		if errors.As(err, &failed) {
			return m.discard(ctx, one, failed.Error())
		}
		return fmt.Sprintf("snapshot %d is being created, %d %%", one.ID, progress), err
	default:
		return m.discard(ctx, one, fmt.Sprintf("snapshot %d is %s", one.ID, one.Status))
	}
}

// unlisted is for a list that does not have what this run has made: Hetzner's lists may be behind, and going by one
// would make a second image.
func (m *imageMaker) unlisted(ctx context.Context) (missing string, err error) {
	exists, err := hetzner.ImageExists(ctx, m.tools.Hetzner, m.made)
	if err != nil {
		return "", err
	}
	if !exists {
		gone := m.made
		m.made = 0
		return fmt.Sprintf("snapshot %d, which this run has made, was deleted", gone), nil
	}
	return fmt.Sprintf("snapshot %d is made, and Hetzner's list of images does not have it yet", m.made), nil
}

// others looks for another run that is making the same image. An upload that an ended run left delays this one no
// longer than a run may take.
func (m *imageMaker) others(ctx context.Context) (missing string, err error) {
	uploads, err := hetzner.Uploads(ctx, m.tools.Hetzner)
	if err != nil {
		return "", err
	}
	m.uploads = &uploads
	for _, u := range uploads {
		if u.Image == m.name && u.Architecture == m.architecture && !m.dead(u) {
			return fmt.Sprintf("another run, for cluster %s, seems to be making it with %s since %s; if there is no such run, "+
				"delete that",
				u.Cluster, u, u.Created.Local().Format(time.TimeOnly)), nil
		}
	}
	return "", nil
}

// dead tells whether no run works with the upload any more. Earlier runs with our identity have ended, and this one has
// no upload in progress when it asks; another run has ended after the time that a run may take.
func (m *imageMaker) dead(u hetzner.Upload) bool { return u.Run == m.run || m.late(u.Created) }

func (m *imageMaker) late(since time.Time) bool {
	return time.Since(since) > m.cfg.ImageTimeout.D()+wait.Overhead
}

// several handles runs that made the image at the same time: the oldest snapshot stays, and a run that made another
// deletes its own. Several for any other reason are for the operator to judge.
func (m *imageMaker) several(ctx context.Context, found []hetzner.Image) (missing string, err error) {
	for _, one := range found[1:] {
		switch {
		case one.ID == m.made:
			return fmt.Sprintf("snapshot %d was made before ours; deleting ours, %d", found[0].ID, one.ID),
				hetzner.DeleteImage(ctx, m.tools.Hetzner, one.ID)
		case one.Run == "" || one.Run == m.run || m.late(one.Created):
			return "", wait.Final(&hetzner.ImageError{Name: m.name, Architecture: m.architecture, Found: found,
				Prune: m.tools.Command("image", "--prune")})
		}
	}
	return fmt.Sprintf("another run made snapshot %d at the same time, and is to take it back", found[len(found)-1].ID),
		nil
}

// discard deletes a snapshot that no server can be made from, if Slipway made it for this cluster.
func (m *imageMaker) discard(ctx context.Context, one hetzner.Image, why string) (missing string, err error) {
	if one.Cluster != m.cfg.ClusterName {
		return "", wait.Final(fmt.Errorf("%s: no server can be made from %s, which this cluster's runs did not make: "+
			"delete it, or take its label away", why, one))
	}
	return why + ": deleting it, to make it again", hetzner.DeleteImage(ctx, m.tools.Hetzner, one.ID)
}

// upload makes the image. Where the best kind of temporary server is out of stock it takes the next.
func (m *imageMaker) upload(ctx context.Context, deadline time.Time) error {
	if err := m.register(ctx); err != nil {
		return err
	}
	types, err := hetzner.UploadServerTypes(ctx, m.tools.Hetzner, m.offer.Location, m.architecture, m.offer.ServerType)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithDeadlineCause(ctx, deadline,
		fmt.Errorf("it took longer than %s (IMAGE_TIMEOUT)", m.cfg.ImageTimeout))
	defer cancel()
	for _, serverType := range types {
		err = m.uploadWith(ctx, serverType)
		if !hetzner.OutOfStock(err) {
			return err
		}
		m.say("%s is out of stock in %s", serverType, m.offer.Location)
	}
	return err
}

func (m *imageMaker) uploadWith(ctx context.Context, serverType string) error {
	order := hetzner.ImageOrder{
		Name: m.name, Architecture: m.architecture, Schematic: m.schematicID, Cluster: m.cfg.ClusterName, Run: m.run,
		URL:         factory.DiskImage(m.schematicID, m.cfg.TalosVersion, m.architecture),
		Description: fmt.Sprintf("Talos Linux %s %s", m.cfg.TalosVersion, m.architecture),
		Location:    m.offer.Location, ServerType: serverType,
	}
	tell, end := repeating(func(line string) {
		m.say("making image %s with a temporary %s: %s", m.name, serverType, line)
	})
	defer end()
	made, err := hetzner.MakeImage(ctx, m.tools.Hetzner, m.tools.Upload, order, tell, m.tools.Log)
	if err == nil {
		m.made = made
	}
	return err
}

// repeating says lines of long work, and repeats the last one, with the time since it was new, where there is none for
// a while. After end it is silent, though the work may go on.
func repeating(say func(line string)) (tell func(line string), end func()) {
	lines, ended, over := make(chan string), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		line, since := "", time.Now()
		for {
			select {
			case <-ended:
				return
			case line = <-lines:
				since = time.Now()
				say(line)
			case <-time.After(imageStillEvery):
				if line != "" {
					say(fmt.Sprintf("%s (for %s)", line, time.Since(since).Round(time.Second)))
				}
			}
		}
	}()
	tell = func(line string) {
		select {
		case lines <- line:
		case <-ended:
		}
	}
	return tell, func() {
		close(ended)
		<-over
	}
}

// register tells the Image Factory of a schematic of the user's own. It knows ours.
func (m *imageMaker) register(ctx context.Context) error {
	if m.tools.Factory == "" || m.schematicID == knownSchematic {
		return nil
	}
	m.say("telling the Image Factory of schematic %s", m.schematicID)
	ctx, cancel := context.WithTimeout(ctx, wait.LookWithin)
	defer cancel()
	return factory.Register(ctx, m.tools.Factory, m.schematic)
}

// tidied is the error of an upload, after what it left was deleted as far as there is time.
func (m *imageMaker) tidied(ctx context.Context, err error) error {
	left := error(nil)
	if ctx.Err() == nil {
		left = m.tidy(ctx)
	} else {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyInHaste)
		defer cancel()
		_, left = m.sweep(ctx) // and no wait for what is busy: the next run sweeps again
	}
	if left != nil {
		return fmt.Errorf("%w; the next run will delete what this one leaves: %w", err, left)
	}
	return err
}

// tidy deletes what uploads of dead runs left, and returns when it is gone. It must not be called during an upload.
func (m *imageMaker) tidy(ctx context.Context) error {
	w := wait.Wait{What: "what an image upload left to be gone", Within: tidyWithin, Every: imageLookEvery}
	return w.Until(ctx, m.say, m.sweep)
}

// sweep has everything deleted that can be now. Nothing is missing once there was nothing to delete.
func (m *imageMaker) sweep(ctx context.Context) (missing string, err error) {
	var uploads []hetzner.Upload
	if m.uploads != nil {
		uploads, m.uploads = *m.uploads, nil // the next sweep looks again
	} else {
		uploads, err = hetzner.Uploads(ctx, m.tools.Hetzner)
	}
	var waits []string
	for _, u := range uploads {
		if !m.dead(u) || u.Run != m.run && u.Cluster != m.cfg.ClusterName {
			continue
		}
		busy, removeErr := hetzner.RemoveUpload(ctx, m.tools.Hetzner, u)
		switch {
		case removeErr != nil:
			err = errors.Join(err, removeErr)
		case busy:
			waits = append(waits, "Hetzner is still at work on "+u.String())
		default:
			waits = append(waits, "deleting "+u.String())
		}
	}
	return strings.Join(waits, ", "), err
}
