package upgrade

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/steps"
)

// StageConfiguration brings what was changed in the configuration, other than versions, to the cluster's own objects.
const StageConfiguration = "configuration"

// configured are the cluster's own objects as the configuration has them now. Each is the live object with what
// differs between the manifests as they were applied last, and as they are now: what others changed since stays.
type configured struct {
	is       *unstructured.Unstructured   // the live template of the control plane's servers
	template *unstructured.Unstructured   // of the new servers; the same where nothing changes in it
	was      []*unstructured.Unstructured // live objects that change
	becomes  []*unstructured.Unstructured // what each of them becomes
	created  []*unstructured.Unstructured // objects that the cluster does not have
	all      []*unstructured.Unstructured // of the manifests, as they become
}

// changes tells whether anything does.
func (c configured) changes() bool { return c.template != c.is || len(c.was)+len(c.created) > 0 }

// configure reads the live objects and makes what they become with the requested values of variables. image is the name
// of the image of the servers; empty: it stays. With other, the manifests count in full (Options.Other).
func (c *controlPlane) configure(ctx context.Context, values map[string]string, image string, other bool) (
	out configured, err error) {
	observed, err := changes.Observe(ctx, c.cfg, c.sources, c.manager)
	if err != nil {
		return out, err
	}
	becomes, err := changes.RenderObserved(c.cfg, c.sources, observed.With(values, image))
	if err != nil {
		return out, err
	}
	before := &render.Rendered{}
	if !other {
		if before, err = c.lastApplied(ctx, observed); err != nil {
			return out, err
		}
	}
	if err := c.configureTemplate(ctx, before, becomes, &out); err != nil {
		return out, err
	}
	out.all = append(out.all, out.template)
	for _, object := range becomes.Now {
		if object.GroupVersionKind() == capi.MachineTemplateKind && object.GetName() == becomes.Template {
			continue
		}
		if err := c.configureObject(ctx, before, object, &out); err != nil {
			return out, err
		}
	}
	return out, nil
}

// lastApplied renders the manifests as they were applied last, with the cluster's values; without objects where that is
// not known any more: then what the manifests have now counts in full.
func (c *controlPlane) lastApplied(ctx context.Context, observed changes.Observed) (*render.Rendered, error) {
	recorded, err := flow.Folder(c.tools.Files.String()).Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("read which manifests were applied last: %w", err)
	}
	sources, known := changes.AppliedSources(c.tools, c.sources, recorded)
	if !known {
		return &render.Rendered{}, nil
	}
	return changes.RenderObserved(c.cfg, sources, observed)
}

func (c *controlPlane) configureTemplate(ctx context.Context, before, becomes *render.Rendered, out *configured) error {
	live, err := c.live(ctx)
	if err != nil {
		return err
	}
	out.is = live.template
	wanted, err := c.controlPlaneIn(becomes)
	if err != nil {
		return err
	}
	old := controlPlaneObjects{template: &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}}
	if len(before.Now) > 0 {
		if old, err = c.controlPlaneIn(before); err != nil {
			return err
		}
	}
	out.template, err = c.changedTemplate(out.is, old.template, wanted.template)
	return err
}

// configureObject adds what a rendered object makes of the live one.
func (c *controlPlane) configureObject(ctx context.Context, before *render.Rendered, object *unstructured.Unstructured,
	out *configured) error {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(object.GroupVersionKind())
	err := c.manager.Get(ctx, client.ObjectKeyFromObject(object), live)
	if kube.Absent(err) {
		out.created, out.all = append(out.created, object), append(out.all, object)
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", kube.Describe(object), err)
	}
	was := &unstructured.Unstructured{Object: map[string]any{}}
	for _, o := range before.Now {
		if o.GroupVersionKind() == object.GroupVersionKind() && o.GetName() == object.GetName() {
			was = o
		}
	}
	is, err := mergedObject(live, was, object)
	if err != nil {
		return fmt.Errorf("change %s: %w", kube.Describe(live), err)
	}
	if is.GroupVersionKind() == capi.TalosControlPlaneKind && is.GetName() == c.cfg.ControlPlaneName() {
		if err := unstructured.SetNestedField(is.Object, out.template.GetName(), "spec", "infrastructureTemplate",
			"name"); err != nil {
			return err
		}
	}
	out.all = append(out.all, is)
	if !jsonEqual(is.Object, live.Object) {
		out.was, out.becomes = append(out.was, live), append(out.becomes, is)
	}
	return nil
}

// mergedObject is a live object with what differs between two rendered ones.
func mergedObject(live, is, becomes *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	fields, err := merged(contentOf(live), contentOf(is), contentOf(becomes))
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{Object: fields}
	labels, annotations := out.GetLabels(), out.GetAnnotations()
	for _, field := range fieldsOfServer() {
		delete(out.Object, field)
		if value, has := live.DeepCopy().Object[field]; has {
			out.Object[field] = value
		}
	}
	out.SetLabels(labels)
	out.SetAnnotations(annotations)
	return out, nil
}

// fieldsOfServer are the fields of an object that no manifest changes.
func fieldsOfServer() []string { return []string{"apiVersion", "kind", "metadata", "status"} }

// contentOf are an object's other fields, and its labels and annotations.
func contentOf(o *unstructured.Unstructured) map[string]any {
	out := &unstructured.Unstructured{Object: maps.Clone(o.Object)}
	for _, field := range fieldsOfServer() {
		delete(out.Object, field)
	}
	out.SetLabels(o.GetLabels())
	out.SetAnnotations(o.GetAnnotations())
	return out.Object
}

// requestedValues are the values of the configuration that the control plane's objects are to get, but for versions,
// which have stages of their own, and for the number of servers, which scale changes. refused says what no operation
// brings to a cluster.
func (e *environment) requestedValues(requested []changes.Deviation) (values map[string]string, refused []string) {
	values = map[string]string{}
	for _, d := range requested {
		switch {
		case d.Variable == "" || slices.Contains(variables(), d.Variable): // of the manifests, and a stage of its own
		case d.Variable == changes.ReplicasVariable:
		case slices.Contains(changes.ImmutableVariables(), d.Variable):
			refused = append(refused, d.String())
		default:
			values[d.Variable] = d.Wanted
		}
	}
	return values, refused
}

// resolved are the values with one server type, and the name of the image for it; empty: the image stays. The servers
// keep their type where it is one of those that are configured. offer is the server type that is in stock; empty: the
// first that is configured.
func (c *controlPlane) resolved(ctx context.Context, values map[string]string, offer string) (map[string]string, string,
	error) {
	live, err := c.live(ctx)
	if err != nil {
		return nil, "", err
	}
	has := capi.Text(live.template, "spec", "template", "spec", "type")
	values = maps.Clone(values)
	_, another := values["IMAGE_NAME"]
	serverType := has
	if listed := config.Listed(values["SERVER_TYPE"]); len(listed) > 0 && !slices.Contains(listed, has) {
		serverType = cmp.Or(offer, listed[0])
	}
	delete(values, "SERVER_TYPE")
	switch {
	case serverType != has:
		values["SERVER_TYPE"] = serverType
	case !another:
		return values, "", nil
	}
	kind, err := hetzner.FindServerType(ctx, c.tools.Hetzner, serverType)
	return values, c.cfg.Image(kind.Architecture), err
}

// configuration is what the configuration changes in the cluster, other than versions.
type configuration struct {
	stage     *Stage   // nil: there is nothing to change
	summaries []string // of what it does
}

// examineConfiguration finds out what the requested values and the edited files change. Its error is a RefusedError
// where that cannot be.
func (e *environment) examineConfiguration(ctx context.Context, c clusters, o Options) (out configuration, err error) {
	values, refused := e.requestedValues(o.Requested)
	plane := newControlPlane(e, c)
	values, image, err := plane.resolved(ctx, values, "")
	if err != nil {
		return out, err
	}
	becomes, err := plane.configure(ctx, values, image, o.Other)
	if err != nil {
		return out, err
	}
	found, err := changes.ConsequencesInCluster(ctx, e.cfg, e.tools, c.manager, &render.Rendered{Now: becomes.all,
		Template: becomes.template.GetName()})
	if err != nil {
		return out, err
	}
	if !o.InPlace {
		if err := plane.refuseHalfInPlace(ctx); err != nil {
			return out, err
		}
	} else {
		var unfit []string
		if found, unfit, err = plane.inPlace(ctx, becomes, found); err != nil {
			return out, err
		}
		for _, why := range unfit {
			refused = append(refused, "not in place: "+why+"; leave --in-place out, and the servers are replaced")
		}
	}
	stage := Stage{Name: StageConfiguration, Back: "configure what was before, and apply that"}
	var does []string
	for _, one := range found {
		switch one.Effect {
		case changes.EffectKeeps:
			continue
		case changes.EffectImmutable:
			refused = append(refused, one.String())
		case changes.EffectReplaces:
			stage.Servers = true
		}
		does, out.summaries = append(does, one.String()), append(out.summaries, one.Summary())
	}
	switch {
	case len(refused) > 0:
		return out, &RefusedError{refused}
	case len(does) > 0:
		stage.Does, out.stage = strings.Join(does, "; "), &stage
	case o.InPlace && len(o.Recorded) > 0:
		stage.Does = "waits until every control plane server runs with what is configured, and Cluster API knows it"
		out.stage, out.summaries = &stage, o.Recorded
	case len(o.Recorded) > 0: // cut off after its last change
		stage.Does, stage.Servers = "waits until every control plane server is as it is configured", true
		out.stage, out.summaries = &stage, o.Recorded
	}
	return out, nil
}

// keepMachineConfig leaves the control plane's TalosConfigSpec as it is.
func (c *configured) keepMachineConfig() error {
	for i, o := range c.was {
		if o.GroupVersionKind() != capi.TalosControlPlaneKind {
			continue
		}
		is := c.becomes[i].Object
		if err := unstructured.SetNestedField(is, controlPlaneSpecOf(o), controlPlaneSpec...); err != nil {
			return err
		}
		if jsonEqual(is, o.Object) {
			c.was, c.becomes = slices.Delete(c.was, i, i+1), slices.Delete(c.becomes, i, i+1)
		}
		break
	}
	return nil
}

// insert puts the stage behind those of the control plane's versions.
func (c configuration) insert(stages []Stage) []Stage {
	if c.stage == nil {
		return stages
	}
	at := 0
	for i, s := range stages {
		if s.Name == StageProviders || s.Name == StageImage || s.Name == StageTalos ||
			strings.HasPrefix(s.Name, StageKubernetes) {
			at = i + 1
		}
	}
	return slices.Insert(stages, at, *c.stage)
}

// configurationStep changes the cluster's own objects, and waits until the control plane's servers are replaced where
// that replaces them.
type configurationStep struct {
	serversStep
	requested []changes.Deviation
	summaries []string
	other     bool // Options.Other
	inPlace   bool // the machine configuration is not changed here, and no server is replaced for it
}

func (s configurationStep) add(g *flow.Graph, offer *flow.Step[steps.Placement],
	image *flow.Step[steps.Image]) *flow.Step[Servers] {
	task := s.task()
	task.Doc = "the cluster's own objects are as configured, and every control plane server is made from them"
	task.Run = flow.With2(func(ctx context.Context, say flow.Say, offer steps.Placement, _ steps.Image) (Servers, error) {
		return s.run(ctx, say, offer.ServerType)
	}, offer, image)
	task.Spec, task.Verify = s.summaries, s.verify
	return flow.Add(g, s.ofFirst(task))
}

func (s configurationStep) run(ctx context.Context, say flow.Say, offer string) (Servers, error) {
	c, now, err := s.begin(ctx, say)
	if err != nil {
		return Servers{}, err
	}
	plane := newControlPlane(s.environment, c)
	if s.stage.Servers {
		if err := plane.ready(ctx, say, s.serversStep, now.view); err != nil {
			return Servers{}, err
		}
	}
	if err := s.changeObjects(ctx, say, plane, offer); err != nil {
		return Servers{}, err
	}
	return s.complete(ctx, say, plane, "the control plane's servers to be as they are configured")
}

// changeObjects changes the objects, and waits while the API server or its webhooks do not answer.
func (s configurationStep) changeObjects(ctx context.Context, say flow.Say, plane *controlPlane, offer string) error {
	return apply.Change(ctx, s.cfg, say, "what is configured", func(ctx context.Context) (string, error) {
		return "", s.change(ctx, say, plane, offer)
	})
}

// change changes the objects. The control plane's template is created first, the Cluster is changed last.
func (s configurationStep) change(ctx context.Context, say flow.Say, plane *controlPlane, offer string) error {
	values, _ := s.requestedValues(s.requested)
	values, image, err := plane.resolved(ctx, values, offer)
	if err != nil {
		return err
	}
	becomes, err := plane.configure(ctx, values, image, s.other)
	if err == nil && s.inPlace {
		err = becomes.keepMachineConfig()
	}
	if err != nil || !becomes.changes() {
		return err
	}
	created := becomes.created
	if becomes.template != becomes.is {
		created = append([]*unstructured.Unstructured{becomes.template}, created...)
	}
	if err := plane.create(ctx, say, created...); err != nil {
		return err
	}
	for i, was := range becomes.was {
		say("changing %s", kube.Describe(was))
		patch := client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})
		if err := plane.manager.Patch(ctx, becomes.becomes[i], patch); err != nil {
			return fmt.Errorf("change %s: %w", kube.Describe(was), err)
		}
	}
	todo, err := changes.ConsequencesInCluster(ctx, s.cfg, s.tools, plane.manager, &render.Rendered{Now: becomes.all,
		Template: becomes.template.GetName()})
	if err != nil {
		return err
	}
	agreed := slices.DeleteFunc(todo, func(c changes.Consequence) bool {
		return !slices.Contains(s.summaries, c.Summary())
	})
	return changes.DeleteLeftOut(ctx, say, plane.manager, s.cfg.Namespace, agreed)
}

func (s configurationStep) verify(ctx context.Context, _ Servers) flow.Verdict {
	c, err := s.open(ctx, silent)
	if err != nil {
		return flow.Unknown(err)
	}
	is, err := s.examineConfiguration(ctx, c, Options{Requested: s.requested, Other: s.other, InPlace: s.inPlace})
	switch {
	case err != nil:
		return kube.Verdict(err)
	case is.stage != nil:
		return flow.Gone("the cluster is not as it is configured: it %s", is.stage.Does)
	}
	return flow.Holds()
}
