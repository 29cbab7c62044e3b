package kind

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"sigs.k8s.io/kind/pkg/cluster"
	kindexec "sigs.k8s.io/kind/pkg/exec"
	kindlog "sigs.k8s.io/kind/pkg/log"
)

// kindReadyWithin is how long kind waits for its node to become Ready. It only
// warns when that takes longer; the step has a wait of its own.
const kindReadyWithin = 3 * time.Minute

// dockerKind is kind's library over Docker, or over the engine in its place. Docker is looked for when it is first
// needed, not when the command starts.
type dockerKind struct {
	log     io.Writer
	engines *chooser
}

func (k dockerKind) engine(ctx context.Context) (engine, error) { return k.engines.engine(ctx) }

func (k dockerKind) provider(say flow.Say) (*cluster.Provider, error) {
	engine, err := k.engines.engine(context.Background())
	if err != nil {
		return nil, err
	}
	return cluster.NewProvider(cluster.ProviderWithLogger(&kindLogger{log: k.log, say: say}), engine.kind(engine.name)),
		nil
}

func (k dockerKind) clusters() ([]string, error) {
	provider, err := k.provider(nil)
	if err != nil {
		return nil, err
	}
	names, err := provider.List()
	if err != nil {
		return nil, fmt.Errorf("%w: start the container engine, %s", kindReason(err), otherwise)
	}
	return names, nil
}

func (k dockerKind) create(name, image, kubeconfigPath, identity string, say flow.Say) error {
	provider, err := k.provider(say)
	if err != nil {
		return err
	}
	engine, err := k.engine(context.Background())
	if err != nil {
		return err
	}
	used, there := findImage(context.Background(), engine.name, image)
	switch {
	case used != image:
		say("the node image %s is on this machine by its tag alone, as an image that was loaded is: using it without its "+
			"digest",
			used)
	case !there:
		say("pulling the node image %s", image)
	}
	return kindReason(provider.Create(name,
		cluster.CreateWithV1Alpha4Config(marked(identity)),
		// Where its creation fails, kind deletes every container with the cluster's name, whoever created it.
		cluster.CreateWithRetain(true),
		cluster.CreateWithNodeImage(used),
		cluster.CreateWithKubeconfigPath(kubeconfigPath),
		cluster.CreateWithWaitForReady(kindReadyWithin),
		cluster.CreateWithDisplayUsage(false),
		cluster.CreateWithDisplaySalutation(false)))
}

func (k dockerKind) remove(name, kubeconfigPath string) error {
	provider, err := k.provider(nil)
	if err != nil {
		return err
	}
	return kindReason(provider.Delete(name, kubeconfigPath))
}

func (k dockerKind) kubeconfig(name string) ([]byte, error) {
	provider, err := k.provider(nil)
	if err != nil {
		return nil, err
	}
	text, err := provider.KubeConfig(name, false)
	return []byte(text), kindReason(err)
}

func (k dockerKind) containers(name string) ([]container, error) {
	engine, err := k.engine(context.Background())
	if err != nil {
		return nil, err
	}
	provider, err := k.provider(nil)
	if err != nil {
		return nil, err
	}
	nodes, err := provider.ListNodes(name)
	if err != nil || len(nodes) == 0 {
		return nil, kindReason(err)
	}
	names := make([]string, len(nodes))
	for i, node := range nodes {
		names[i] = node.String()
	}
	return inspect(context.Background(), engine.name, names)
}

func (k dockerKind) initialised(name string) (bool, error) {
	provider, err := k.provider(nil)
	if err != nil {
		return false, err
	}
	nodes, err := provider.ListNodes(name)
	if err != nil {
		return false, kindReason(err)
	}
	for _, node := range nodes {
		role, err := node.Role()
		if err != nil {
			return false, err
		}
		if role != "control-plane" {
			continue
		}
		// The shell answers in words: the exit code of a stopped container and
		// that of a missing file are the same.
		lines, err := kindexec.OutputLines(node.Command("sh", "-c",
			"test -s /etc/kubernetes/admin.conf && echo yes || echo no"))
		if err != nil {
			return false, kindReason(err)
		}
		return len(lines) == 1 && lines[0] == "yes", nil
	}
	return false, fmt.Errorf("kind cluster %s has no control plane node", name)
}

// kindReason has an error of kind's tell what the program said that kind ran: kind itself only tells its exit code.
func kindReason(err error) error {
	run := kindexec.RunErrorForError(err)
	if run == nil || len(run.Command) == 0 {
		return err
	}
	said := reason(string(run.Output))
	if said == "" {
		return err
	}
	program := strings.Join(run.Command[:min(2, len(run.Command))], " ")
	return &kindError{text: strings.Replace(err.Error(), run.Error(), program+": "+text.Printable(said), 1), err: err}
}

// reason is the line that tells most of what a program said: the engine's own error, or the last line but the one that
// says where the program's help is.
func reason(output string) string {
	best := ""
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if _, said, is := strings.Cut(line, "Error response from daemon: "); is {
			return "Error response from daemon: " + said
		}
		if line != "" && !strings.Contains(line, " --help") {
			best = line
		}
	}
	return best
}

type kindError struct {
	text string
	err  error
}

func (e *kindError) Error() string { return e.text }
func (e *kindError) Unwrap() error { return e.err }

// kindLogger gives kind's own words to the log, and what it tells people to say.
type kindLogger struct {
	mu  sync.Mutex
	log io.Writer
	say flow.Say // nil: its lines are dropped
}

func (l *kindLogger) write(level, message string, tell bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	message = strings.TrimSpace(message)
	fmt.Fprintf(l.log, "kind: %s: %s\n", level, message)
	if tell && l.say != nil && message != "" {
		l.say("kind: %s", text.Printable(message))
	}
}

func (l *kindLogger) Warn(message string)               { l.write("warning", message, true) }
func (l *kindLogger) Warnf(format string, args ...any)  { l.Warn(fmt.Sprintf(format, args...)) }
func (l *kindLogger) Error(message string)              { l.write("error", message, true) }
func (l *kindLogger) Errorf(format string, args ...any) { l.Error(fmt.Sprintf(format, args...)) }

// V enables what kind says to people and its first level of debugging.
func (l *kindLogger) V(level kindlog.Level) kindlog.InfoLogger { return kindInfo{l, level} }

type kindInfo struct {
	logger *kindLogger
	level  kindlog.Level
}

func (i kindInfo) Enabled() bool { return i.level <= 1 }

func (i kindInfo) Info(message string) {
	if i.Enabled() {
		i.logger.write("info", message, i.level == 0)
	}
}

func (i kindInfo) Infof(format string, args ...any) { i.Info(fmt.Sprintf(format, args...)) }
