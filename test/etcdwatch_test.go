package test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// etcdWatch notes, while a test goes on, how many voting members etcd has, and whether a write to the cluster succeeds.
type etcdWatch struct {
	stop func()
	done sync.WaitGroup

	mu      sync.Mutex
	voters  []int // each number that was seen, in the order in which they changed
	most    int   // members, with learners, that were seen beyond the voters at once
	writes  int
	silence time.Duration // longest time between two writes that succeeded
	last    error         // of the last write that failed
}

// watchEtcd begins to look. Its end is that of the test at the latest.
func watchEtcd(t *testing.T, c *command) *etcdWatch {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	w := &etcdWatch{stop: stop}
	talos, err := talosclient.New(t.Context(), talosclient.WithConfigFromFile(filepath.Join(c.state, "talosconfig")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = talos.Close() })
	maps := workload(t, c).CoreV1().ConfigMaps("default")
	written := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "etcd-watch"}}
	w.done.Go(func() {
		good := time.Now()
		for i := 0; tick(ctx, 100*time.Millisecond); i++ {
			asking, cancel := context.WithTimeout(ctx, 2*time.Second)
			written.Data = map[string]string{"count": fmt.Sprint(i)}
			_, err := maps.Update(asking, written, metav1.UpdateOptions{})
			if err != nil && strings.Contains(err.Error(), "not found") {
				_, err = maps.Create(asking, written, metav1.CreateOptions{})
			}
			cancel()
			w.wrote(err, &good)
		}
	})
	w.done.Go(func() {
		for tick(ctx, 100*time.Millisecond) {
			asking, cancel := context.WithTimeout(ctx, 2*time.Second)
			if resp, err := talos.EtcdMemberList(asking, &machine.EtcdMemberListRequest{}); err == nil {
				w.saw(resp.GetMessages()[0].GetMembers())
			}
			cancel()
		}
	})
	return w
}

func tick(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

func (w *etcdWatch) wrote(err error, good *time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.last = err
		return
	}
	w.writes++
	w.silence = max(w.silence, time.Since(*good))
	*good = time.Now()
}

func (w *etcdWatch) saw(members []*machine.EtcdMember) {
	voters := 0
	for _, m := range members {
		if !m.GetIsLearner() {
			voters++
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most = max(w.most, len(members)-voters)
	if len(w.voters) == 0 || w.voters[len(w.voters)-1] != voters {
		w.voters = append(w.voters, voters)
	}
}

// oneAtATime ends the watch. The number of voting members went from the first to the last, and changed by one each time,
// never with more than one learner beside them; the cluster took writes all the time, but for a pause as elections make.
func (w *etcdWatch) oneAtATime(t *testing.T, first, last int) {
	t.Helper()
	w.stop()
	w.done.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.voters) == 0 || w.voters[0] != first || w.voters[len(w.voters)-1] != last || w.most > 1 {
		t.Errorf("etcd had %v voting members in this order, and at most %d learners at once; want %d to %d, and 1", w.voters,
			w.most, first, last)
	}
	for i := 1; i < len(w.voters); i++ {
		if change := w.voters[i] - w.voters[i-1]; change != 1 && change != -1 {
			t.Errorf("etcd had %v voting members in this order: they changed by %d at once", w.voters, change)
		}
	}
	t.Logf("%d writes, at most %s apart; the last that failed: %v", w.writes, w.silence.Round(10*time.Millisecond), w.last)
	if w.writes == 0 || w.silence > 30*time.Second {
		t.Errorf("%d writes succeeded, with a pause of %s", w.writes, w.silence)
	}
}
