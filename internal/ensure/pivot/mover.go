package pivot

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
)

// mover takes objects from one management cluster to another, while their Cluster is paused in both. It creates every
// object at the target, owners first, and only then deletes every object at the source, owners last. A run that was
// killed anywhere is simply repeated, also one of clusterctl's mover.
type mover struct {
	cfg            config.Config
	say            flow.Say
	copy           records.PivotCopy
	source, target *kube.Cluster
	total          int // objects in the copy
}

// move moves objects of the source.
func (m mover) move(ctx context.Context, objects []unstructured.Unstructured) error {
	ordered := capi.OwnersFirst(objects)
	for i := range ordered {
		key := capi.ObjectKeyOf(&ordered[i])
		m.say("creating %s in the cluster (%d of %d)", key, i+1, m.total)
		err := apply.Change(ctx, m.cfg, m.say, key.String(),
			func(ctx context.Context) (string, error) { return "", m.create(ctx, &ordered[i]) })
		if err != nil {
			return err
		}
	}
	m.say("deleting %d objects in the management cluster", len(ordered))
	for _, o := range slices.Backward(ordered) {
		err := apply.Change(ctx, m.cfg, m.say, "the deletion of "+capi.ObjectKeyOf(&o).String(),
			func(ctx context.Context) (string, error) { return m.remove(ctx, &o) })
		if err != nil {
			return err
		}
	}
	return nil
}

// create makes an object of the target what it is at the source. One that is there is written, too: its owners may have
// been created anew since, with other UIDs.
func (m mover) create(ctx context.Context, listed *unstructured.Unstructured) error {
	was, err := m.wanted(ctx, listed)
	if err != nil {
		return err
	}
	is, err := apply.ReadCopied(ctx, m.target, was)
	switch {
	case err != nil:
		return err
	case is == nil:
		err = apply.CreateCopy(ctx, m.target, was)
	default:
		err = apply.UpdateCopy(ctx, m.target, was, is)
	}
	if err != nil {
		return err
	}
	return m.keepManagers(ctx, was)
}

// wanted is an object as it is to be at the target, which the copy gets, too: what a controller still wrote a moment
// before it saw the pause is not lost. An object that an earlier move has begun to delete may have lost annotations and
// finalizers at the source: only the copy still has them.
func (m mover) wanted(ctx context.Context, listed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	key := capi.ObjectKeyOf(listed)
	now, err := apply.ReadCopied(ctx, m.source, listed)
	switch {
	case err != nil:
		return nil, err
	case now == nil:
		return nil, fmt.Errorf("%s is not in the management cluster any more, where nothing but the move should delete it: "+
			"run again", key)
	case capi.IsMarked(now):
		was, err := m.copy.Get(key)
		if err == nil && was == nil {
			err = fmt.Errorf("an earlier move has begun to delete %s, and there is no copy of it", key)
		}
		return was, err
	}
	now.SetDeletionTimestamp(nil)
	now.SetDeletionGracePeriodSeconds(nil)
	return now, m.copy.Put(now)
}

// keepManagers gives an object at the target the field managers that it has at the source. The one who created it would
// own all of its fields beside them, and no other could remove one any more by server-side apply.
func (m mover) keepManagers(ctx context.Context, was *unstructured.Unstructured) error {
	managers := was.GetManagedFields()
	if len(managers) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"managedFields": managers}})
	if err != nil {
		return err
	}
	if err := m.target.Patch(ctx, was.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("write the field managers of %s: %w", capi.ObjectKeyOf(was), err)
	}
	return nil
}

// remove deletes an object at the source, and says what is left of it. The mark comes first: from then on the copy, and
// not the source, says what the object is.
func (m mover) remove(ctx context.Context, listed *unstructured.Unstructured) (left string, err error) {
	is, err := apply.ReadCopied(ctx, m.source, listed)
	if is == nil || err != nil {
		return "", err
	}
	if !capi.IsMarked(is) {
		if err := capi.Annotate(ctx, m.source, is, map[string]any{capi.DeleteForMove: ""}); err != nil {
			return "", client.IgnoreNotFound(err)
		}
	}
	if err := apply.RemoveCopy(ctx, m.source, is); err != nil {
		return "", err
	}
	if is, err = apply.ReadCopied(ctx, m.source, listed); is == nil || err != nil {
		return "", err
	}
	return "it is still there, with the finalizers " + strings.Join(is.GetFinalizers(), ", "), nil
}
