package kubelet

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// ref names a Secret or a ConfigMap that a Pod refers to.
type ref struct {
	kind            string // secretKind or configMapKind
	namespace, name string
}

const (
	secretKind    = "secret"
	configMapKind = "configmap"
)

// objects follows the Secrets and ConfigMaps that the Node's Pods refer to, each by a watch
// of its own: a node may not list others.
type objects struct {
	client kubernetes.Interface

	mu      sync.Mutex
	entries map[ref]*entry
}

type entry struct {
	users   map[*notifier]int
	cancel  context.CancelFunc
	content *content // nil while err is set
	err     error    // NotFound, or why it could not be read
}

// content is what a Secret or a ConfigMap holds. Environments have its values alone.
type content struct{ values, binary map[string][]byte }

func contentOf(object runtime.Object) *content {
	switch of := object.(type) {
	case *corev1.Secret:
		return &content{values: of.Data}
	case *corev1.ConfigMap:
		c := &content{values: map[string][]byte{}, binary: of.BinaryData}
		for key, value := range of.Data {
			c.values[key] = []byte(value)
		}
		return c
	}
	return nil
}

func newObjects(client kubernetes.Interface) *objects {
	return &objects{client: client, entries: map[ref]*entry{}}
}

// follow begins to watch an object for a user, whose notifier is raised at every change, until forget.
func (o *objects) follow(ctx context.Context, r ref, user *notifier) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.entries[r]
	if e == nil {
		e = &entry{users: map[*notifier]int{}, err: fmt.Errorf("%s %q has not been read yet", r.kind, r.name)}
		o.entries[r] = e
		ctx, e.cancel = context.WithCancel(ctx)
		go o.watch(ctx, r, e)
	}
	e.users[user]++
}

func (o *objects) forget(r ref, user *notifier) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.entries[r]
	if e == nil {
		return
	}
	if e.users[user]--; e.users[user] <= 0 {
		delete(e.users, user)
	}
	if len(e.users) == 0 {
		e.cancel()
		delete(o.entries, r)
	}
}

// get returns what an object that is followed holds. The error is a NotFound where it does not exist.
func (o *objects) get(r ref) (*content, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e := o.entries[r]; e != nil {
		return e.content, e.err
	}
	return nil, fmt.Errorf("%s %q is not followed", r.kind, r.name)
}

// set records the current state of an object and notifies its users.
func (o *objects) set(r ref, e *entry, object runtime.Object, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e.content = contentOf(object)
	if e.err = err; object == nil && err == nil {
		e.err = apierrors.NewNotFound(corev1.Resource(r.kind), r.name)
	}
	for user := range e.users {
		user.raise()
	}
}

// watch keeps an entry up to date until ctx is done. What was read stays while the API server cannot be asked.
func (o *objects) watch(ctx context.Context, r ref, e *entry) {
	retry := toAPI()
	for {
		read, err := o.watchOnce(ctx, r, e)
		if read {
			retry.reset()
		} else if err != nil && ctx.Err() == nil {
			o.mu.Lock()
			unread := e.content == nil
			o.mu.Unlock()
			if unread { // Forbidden too: the authorizer sees a Pod a moment after the kubelet
				o.set(r, e, nil, fmt.Errorf("%s %q could not be read: %w", r.kind, r.name, err))
			}
		}
		if !sleep(ctx, retry.next()) {
			return
		}
	}
}

// watchOnce reads an object and watches it until the watch ends; read says whether it could be read.
func (o *objects) watchOnce(ctx context.Context, r ref, e *entry) (read bool, err error) {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", r.name).String()}
	object, version, err := o.list(ctx, r, options)
	if err != nil {
		return false, err
	}
	o.set(r, e, object, nil)

	options.ResourceVersion, options.AllowWatchBookmarks = version, true
	var changes watch.Interface
	if r.kind == secretKind {
		changes, err = o.client.CoreV1().Secrets(r.namespace).Watch(ctx, options)
	} else {
		changes, err = o.client.CoreV1().ConfigMaps(r.namespace).Watch(ctx, options)
	}
	if err != nil {
		return true, err
	}
	defer changes.Stop()
	for change := range changes.ResultChan() {
		switch change.Type {
		case watch.Added, watch.Modified, watch.Deleted:
		case watch.Error:
			return true, apierrors.FromObject(change.Object)
		default:
			continue
		}
		if accessor, ok := change.Object.(metav1.Object); !ok || accessor.GetName() != r.name {
			continue
		}
		if change.Type == watch.Deleted {
			change.Object = nil
		}
		o.set(r, e, change.Object, nil)
	}
	return true, nil
}

// list returns the object, nil if there is none, and the version from which to watch.
func (o *objects) list(ctx context.Context, r ref, options metav1.ListOptions) (runtime.Object, string, error) {
	var list runtime.Object
	var err error
	if r.kind == secretKind {
		list, err = o.client.CoreV1().Secrets(r.namespace).List(ctx, options)
	} else {
		list, err = o.client.CoreV1().ConfigMaps(r.namespace).List(ctx, options)
	}
	if err != nil {
		return nil, "", err
	}
	about, err := meta.ListAccessor(list)
	if err != nil {
		return nil, "", err
	}
	var found runtime.Object
	err = meta.EachListItem(list, func(item runtime.Object) error {
		if one, ok := item.(metav1.Object); ok && one.GetName() == r.name {
			found = item
		}
		return nil
	})
	return found, about.GetResourceVersion(), err
}
