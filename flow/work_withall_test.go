package flow

import (
	"context"
	"slices"
	"testing"
)

// WithAll passes the outputs in the order of the handles, and none where there are no handles.
func TestWithAll(t *testing.T) {
	for _, n := range []int{0, 1, 5} {
		g := New("g")
		var all []*Step[int]
		var want []int
		for i := range n {
			all = append(all, Add(g, Task[int]{
				Name: string(rune('a' + i)),
				Run:  Do(func(context.Context, Say) (int, error) { return i * i, nil }),
			}))
			want = append(want, i*i)
		}
		var got []int
		last := Add(g, Task[int]{
			Name: "last",
			Run: WithAll(func(_ context.Context, _ Say, in []int) (int, error) {
				got = slices.Clone(in)
				return len(in), nil
			}, all),
		})
		if _, err := g.Run(t.Context(), Options{Targets: []string{last.Name()}}); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d steps: %v, %v, want %v", n, got, err, want)
		}
	}
}
