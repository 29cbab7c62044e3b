package kube

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// logAgain is the pause before a log is opened again that broke off, or that could not be opened.
	logAgain = time.Second
	// logTroubleAfter is how often in a row a log cannot be opened before that is trouble: a node that has just joined
	// waits for its kubelet's certificate, and one that goes takes its Pods' logs with it some seconds before they are
	// gone.
	logTroubleAfter = 15
)

// LogOptions says which logs to read. Its functions are called by many at once.
type LogOptions struct {
	Pods  func(*corev1.Pod) bool
	After time.Time // only lines that were written later; zero: from the beginning
	Lines int64     // of each container that is there at the beginning, the last so many; below 0: all
	Line  func(LogLine)
	// Trouble hears why a container's log cannot be read, or with an empty Pod why the cluster's Pods cannot. It may hear
	// the same again.
	Trouble func(where LogLine, err error)
}

// OpenLogs opens the logs of all containers as they are now.
func (c *Cluster) OpenLogs(ctx context.Context, w LogOptions) ([]*LogStream, error) {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods); err != nil {
		return nil, err
	}
	var streams []*LogStream
	for i := range pods.Items {
		if !w.Pods(&pods.Items[i]) {
			continue
		}
		for _, run := range runsOf(&pods.Items[i]) {
			if run.id == "" {
				continue
			}
			r := LogRequest{Namespace: pods.Items[i].Namespace, Pod: pods.Items[i].Name, Container: run.container,
				After: w.After, Lines: w.Lines}
			s, err := c.OpenLog(ctx, r)
			if err != nil {
				w.Trouble(r.where(), err)
				continue
			}
			streams = append(streams, s)
		}
	}
	return streams, nil
}

// FollowLogs hands on the lines of all containers, those of Pods that come later too, until ctx is done.
func (c *Cluster) FollowLogs(ctx context.Context, w LogOptions) {
	f := &logFollower{cluster: c, options: w, pods: map[types.UID]*followedPod{}}
	defer f.workers.Wait()
	for ctx.Err() == nil {
		if err := f.watch(ctx); err != nil && ctx.Err() == nil {
			w.Trouble(LogLine{}, err)
		}
		restUntil(ctx, nil, logAgain)
	}
}

func (r LogRequest) where() LogLine {
	return LogLine{Namespace: r.Namespace, Pod: r.Pod, Container: r.Container}
}

// restUntil waits, at most until changed is closed.
func restUntil(ctx context.Context, changed <-chan struct{}, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-changed:
	case <-time.After(d):
	}
}

// logFollower follows the logs of one cluster.
type logFollower struct {
	cluster *Cluster
	options LogOptions
	workers sync.WaitGroup
	begun   bool // what is there was looked at
	pods    map[types.UID]*followedPod
}

// watch looks at the Pods, and then at every change, until the watch breaks off.
func (f *logFollower) watch(ctx context.Context) error {
	// A watch of its own begins with what is there; the list before it tells when that is over, and what is gone.
	there := &corev1.PodList{}
	if err := f.cluster.List(ctx, there); err != nil {
		return err
	}
	known := map[types.UID]bool{}
	for i := range there.Items {
		known[there.Items[i].UID] = true
		f.observe(ctx, &there.Items[i])
	}
	for uid := range f.pods {
		if !known[uid] {
			f.forget(uid)
		}
	}
	f.begun = true
	w, err := f.cluster.Watch(ctx, &corev1.PodList{})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		pod, ok := e.Object.(*corev1.Pod)
		switch {
		case !ok:
			return apierrors.FromObject(e.Object)
		case e.Type == watch.Deleted:
			f.forget(pod.UID)
		default:
			f.observe(ctx, pod)
		}
	}
	return nil
}

func (f *logFollower) observe(ctx context.Context, pod *corev1.Pod) {
	if !f.options.Pods(pod) {
		return
	}
	p := f.pods[pod.UID]
	if p == nil {
		p = &followedPod{namespace: pod.Namespace, name: pod.Name, late: f.begun}
		f.pods[pod.UID] = p
	}
	for _, run := range p.update(pod) {
		f.workers.Go(func() { f.container(ctx, p, run.container) })
	}
}

func (f *logFollower) forget(uid types.UID) {
	if p := f.pods[uid]; p != nil {
		delete(f.pods, uid)
		p.update(nil)
	}
}

// followedPod is a Pod whose containers are followed.
type followedPod struct {
	namespace, name string
	late            bool // it was not there at the beginning

	mu      sync.Mutex
	runs    []containerRun
	gone    bool
	changed chan struct{} // closed at the next change; nil: nothing waits
}

// containerRun is the state of a container.
type containerRun struct {
	container string
	id        string // of its present or last run; empty: it has not been started
	running   bool
}

// runsOf are the containers of a Pod with something to read: init containers only until they have come to a good end.
func runsOf(pod *corev1.Pod) []containerRun {
	var runs []containerRun
	for _, s := range pod.Status.InitContainerStatuses {
		if s.State.Terminated == nil || s.State.Terminated.ExitCode != 0 {
			runs = append(runs, runOf(s))
		}
	}
	for _, s := range pod.Status.ContainerStatuses {
		runs = append(runs, runOf(s))
	}
	return runs
}

func runOf(s corev1.ContainerStatus) containerRun {
	id := s.ContainerID
	if id == "" && s.State.Running != nil { // not every runtime gives one
		id = s.State.Running.StartedAt.String()
	}
	return containerRun{container: s.Name, id: id, running: s.State.Running != nil}
}

// update takes over what the API says, nil where the Pod is gone, and returns the containers that are new.
func (p *followedPod) update(pod *corev1.Pod) (fresh []containerRun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone = pod == nil; !p.gone {
		runs := runsOf(pod)
		for _, run := range runs {
			if !slices.ContainsFunc(p.runs, func(r containerRun) bool { return r.container == run.container }) {
				fresh = append(fresh, run)
			}
		}
		for _, was := range p.runs { // one that is left out now still has its worker
			if !slices.ContainsFunc(runs, func(r containerRun) bool { return r.container == was.container }) {
				was.running = false
				runs = append(runs, was)
			}
		}
		p.runs = runs
	}
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
	return fresh
}

func (p *followedPod) state(container string) (run containerRun, gone bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	for _, r := range p.runs {
		if r.container == container {
			run = r
		}
	}
	return run, p.gone, p.changed
}

// container follows one container over all its runs, until its Pod is gone.
func (f *logFollower) container(ctx context.Context, p *followedPod, name string) {
	r := LogRequest{Namespace: p.namespace, Pod: p.name, Container: name, After: f.options.After, Lines: f.options.Lines,
		Follow: true}
	if p.late {
		r.Lines = -1
	}
	read := "" // the run whose log was read, to its end where complete
	complete := false
	failures := 0
	for ctx.Err() == nil {
		run, gone, changed := p.state(name)
		if run.id == "" || run.id == read && complete {
			if gone {
				return
			}
			restUntil(ctx, changed, time.Minute)
			continue
		}
		if read != "" && read != run.id && !complete { // it was restarted before the rest was read
			previous := r
			previous.Previous, previous.Follow = true, false
			err := f.copy(ctx, &previous)
			r.After = previous.After
			// those mean that the kubelet has it no more
			if err != nil && !apierrors.IsBadRequest(err) && !apierrors.IsNotFound(err) {
				restUntil(ctx, nil, logAgain)
				continue
			}
			complete = true
		}
		begin := r.After
		err := f.copy(ctx, &r)
		if err == nil || errors.Is(err, errBroken) {
			read, complete = run.id, err == nil && !run.running
		}
		if err == nil || r.After.After(begin) {
			r.Lines = -1 // from here on by time
		}
		if failures++; err == nil || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) {
			failures = 0
		}
		switch {
		case gone || complete: // after the Pod's end there is one try for the rest
		case apierrors.IsBadRequest(err): // it has no log, and will have one when something about it changes
			f.options.Trouble(r.where(), err)
			restUntil(ctx, changed, time.Minute)
		case failures > 0 && failures%logTroubleAfter == 0:
			f.options.Trouble(r.where(), err)
			fallthrough
		case failures > 0:
			restUntil(ctx, nil, logAgain)
		default:
			restUntil(ctx, changed, logAgain)
		}
		if gone {
			return
		}
	}
}

// errBroken is a log that broke off.
var errBroken = errors.New("the log broke off")

// copy hands on a log's lines, and keeps in the request where it has come to.
func (f *logFollower) copy(ctx context.Context, r *LogRequest) error {
	stream, err := f.cluster.OpenLog(ctx, *r)
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		line, err := stream.Next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return errBroken
		}
		if line.Time.After(r.After) {
			r.After = line.Time
		}
		f.options.Line(line)
	}
}
