package etcdview

import (
	"errors"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/client/talos"
)

func TestWhetherEtcdCanDoWithout(t *testing.T) {
	silent := errors.New("does not answer")
	for _, tt := range []struct {
		what     string
		voters   string
		learners string
		health   map[string]error // of those who were asked
		without  string
		refused  string // part of the reason; empty: it can go
	}{
		{"three, all well", "a b c", "", map[string]error{"b": nil, "c": nil}, "a", ""},
		{"three, another is ill", "a b c", "", map[string]error{"b": nil, "c": silent}, "a", "of 3 voting members 2 must " +
			"be healthy without a, and b is; c: does not answer"},
		{"the ill one itself", "a b c", "", map[string]error{"a": nil, "b": nil}, "c", ""},
		{"a dead member that has no machine", "a b c", "", map[string]error{"b": nil}, "a", "c: no Machine has this name"},
		{"one alone", "a", "", map[string]error{}, "a", "and none is"},
		{"five, one more ill", "a b c d e", "", map[string]error{"b": nil, "c": nil, "d": nil, "e": silent}, "a", ""},
		{"five, two more ill", "a b c d e", "", map[string]error{"b": nil, "c": nil, "d": silent, "e": silent}, "a",
			"d, e: does not answer"},
		{"a learner counts for nothing", "a b", "c", map[string]error{"b": nil, "c": nil}, "a", "of 2 voting members 2 " +
			"must be healthy without a, and b is"},
		{"it is no member any more", "b c", "", map[string]error{"b": nil, "c": nil}, "a", ""},
	} {
		t.Run(tt.what, func(t *testing.T) {
			e := View{Health: tt.health}
			for _, name := range strings.Fields(tt.voters) {
				e.Members = append(e.Members, talos.EtcdMember{Name: name})
			}
			for _, name := range strings.Fields(tt.learners) {
				e.Members = append(e.Members, talos.EtcdMember{Name: name, Learner: true})
			}
			why := e.Needs(tt.without)
			if (why == "") != (tt.refused == "") || !strings.Contains(why, tt.refused) {
				t.Errorf("got %q, want %q", why, tt.refused)
			}
		})
	}
}

// Whether it is of use to look again depends on what keeps the others from serving.
func TestWhetherTimeMayHelp(t *testing.T) {
	passes, stopped := errors.New("does not call itself healthy"), &StoppedError{"Failed"}
	e := View{Members: []talos.EtcdMember{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
	for _, tt := range []struct {
		health map[string]error // of those who were asked
		may    bool
	}{
		{map[string]error{"b": nil, "c": nil}, true},
		{map[string]error{"b": nil, "c": passes}, true},
		{map[string]error{"b": passes, "c": passes}, true},
		{map[string]error{"b": nil, "c": stopped}, false},
		{map[string]error{"b": nil, "c": errOnItsWayOut}, false},
		{map[string]error{"b": nil}, false},
	} {
		e.Health = tt.health
		if may := e.MayRecoverWithout("a"); may != tt.may {
			t.Errorf("with %v time may help: %v", tt.health, may)
		}
	}
	unknown := View{Health: map[string]error{"b": passes, "c": stopped}} // none said who the members are
	if !unknown.MayRecoverWithout("a") || (View{Health: map[string]error{"c": stopped}}).MayRecoverWithout("a") ||
		(View{}).MayRecoverWithout("a") {
		t.Error("without members it does not depend on what those who were asked say")
	}
}

// A stopped member is named with what to do: to replace its server, where the others have their quorum.
func TestAStoppedMember(t *testing.T) {
	command := func(words ...string) string { return strings.Join(words, " ") }
	stopped := &StoppedError{"Failed"}
	e := View{Members: []talos.EtcdMember{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
	for _, tt := range []struct {
		health map[string]error
		says   string
	}{
		{map[string]error{"a": nil, "b": nil, "c": stopped}, "c: its etcd is stopped (Talos: Failed), and the control plane " +
			"provider adds, removes and replaces no server while it is; the other members have their quorum: replace-machine c"},
		{map[string]error{"a": nil, "b": stopped}, "without it etcd has no quorum: start it"},
		{map[string]error{"a": nil, "b": nil, "c": errors.New("does not answer")}, ""},
	} {
		e.Health = tt.health
		if got := e.Repair(command); !strings.Contains(got, tt.says) || tt.says == "" && got != "" {
			t.Errorf("got %q, want %q", got, tt.says)
		}
	}
}

func TestWhenEtcdIsWholeAgain(t *testing.T) {
	members := []talos.EtcdMember{{Name: "a"}, {Name: "b"}, {Name: "dead"}, {Name: "new", Learner: true}}
	e := View{Members: members, Health: map[string]error{"b": errors.New("is restarting")}}
	if got, want := e.Differs([]string{"a", "b", "new"}), "b: is restarting; new does not vote in etcd yet; etcd still "+
		"counts dead"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	e = View{Members: members[:2]}
	if got := e.Differs([]string{"a", "b"}); got != "" {
		t.Errorf("got %q", got)
	}
}
