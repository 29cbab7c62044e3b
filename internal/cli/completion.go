package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/kind"
	"github.com/slipway-k8s/slipway/internal/lab"
	"github.com/slipway-k8s/slipway/steps"
)

// runCompletion prints a script that a shell reads to complete the command's words.
// The script stands by itself: it runs nothing.
func runCompletion(_ context.Context, c *console, a arguments) error {
	v, err := newVocabulary()
	if err != nil {
		return err
	}
	write := map[string]func(vocabulary) string{"bash": vocabulary.bash, "zsh": vocabulary.zsh, "fish": vocabulary.fish}[a.Targets[1]]
	_, err = io.WriteString(c.stdout, write(v))
	return err
}

// vocabulary is every word that the command takes, with a line about each.
type vocabulary struct {
	targets   []word
	following map[string][]word   // the words that follow one: of "lab", of "completion"
	flags     []word              // "--lab"
	values    map[string][]string // of a flag or a variable, where they can be listed
	files     []string            // flags that take a path
	faults    []fault             // kinds of faults in the lab, and what each takes
	variables []word              // "LOCATION="
}

type word struct{ text, doc string }

type fault struct {
	kind string
	keys []word // "delay="
}

func newVocabulary() (vocabulary, error) {
	v := vocabulary{
		following: map[string][]word{},
		values:    map[string][]string{"--output": {"text", "json"}, "--lab-latency": {"fast", "real"}},
		files:     []string{"--config", "--dir", "--lab-images", "--out", "--state-dir"},
	}
	plan, err := steps.New(steps.Defaults(), steps.Tools{Management: &kind.Provider{}})
	if err != nil {
		return v, err
	}
	for _, t := range targets() {
		v.add(t)
	}
	for _, s := range plan.Graph.Steps() {
		v.targets = append(v.targets, word{s.Name, s.Doc})
	}
	v.following["plan"], v.following["help"] = v.targets, v.targets
	var o options
	flags(&o).VisitAll(func(f *flag.Flag) {
		if len(f.Name) > 1 {
			_, text := flag.UnquoteUsage(f)
			v.flags = append(v.flags, word{"--" + f.Name, text})
		}
	})
	v.addFaults()
	for _, variable := range steps.Variables() {
		v.variables = append(v.variables, word{variable.Name + "=", variable.Doc})
		if choices := variable.Choices(); choices != nil {
			v.values[variable.Name] = choices
		}
	}
	return v, nil
}

// add takes up a target of the table.
func (v *vocabulary) add(t target) {
	name := t.words()
	for i, text := range name {
		w := word{text, t.doc}
		if i < len(name)-1 {
			_, verbs := following(name[:i+1])
			w.doc = strings.Join(verbs, ", ")
		}
		if i == 0 {
			v.targets = with(v.targets, w)
		} else {
			v.following[name[i-1]] = with(v.following[name[i-1]], w)
		}
	}
	if len(t.arguments) > 0 && strings.Contains(t.arguments[0], "|") {
		for _, choice := range strings.Split(t.arguments[0], "|") {
			v.following[name[len(name)-1]] = with(v.following[name[len(name)-1]], word{choice, ""})
		}
	}
	for _, form := range t.outputs {
		if !slices.Contains(v.values["--output"], form) {
			v.values["--output"] = append(v.values["--output"], form)
		}
	}
}

// addFaults takes up the kinds of faults, which follow the last word of their target, and the keys of each.
func (v *vocabulary) addFaults() {
	docs := lab.FaultKeys()
	for _, k := range lab.FaultKinds() {
		v.following["add"] = append(v.following["add"], word{k.Name, k.Doc})
		f := fault{kind: k.Name}
		for _, key := range k.Keys() {
			f.keys = append(f.keys, word{key + "=", docs[key].Doc})
		}
		v.faults = append(v.faults, f)
	}
}

// with is a list with a word, once.
func with(list []word, w word) []word {
	if slices.ContainsFunc(list, func(other word) bool { return other.text == w.text }) {
		return list
	}
	return append(list, w)
}

func texts(words []word) string {
	var all []string
	for _, w := range words {
		all = append(all, w.text)
	}
	return strings.Join(all, " ")
}

func (v vocabulary) bash() string {
	var b strings.Builder
	b.WriteString("# bash completion for bootstrap: source <(bootstrap completion bash)\n_bootstrap() {\n" +
		"  local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\" key=\"\"\n" +
		"  # The shell splits KEY=VALUE at its =.\n" +
		"  if [[ $word == \"=\" ]]; then key=$before; word=\"\"; elif [[ $before == \"=\" ]]; then key=\"${COMP_WORDS[COMP_CWORD-2]}\"; fi\n" +
		"  if [[ -z $key && $word != -* ]]; then key=$before; fi\n")
	v.bashFaults(&b)
	b.WriteString("  case \"$key\" in\n")
	for _, key := range slices.Sorted(maps.Keys(v.values)) {
		fmt.Fprintf(&b, "    %s) COMPREPLY=($(compgen -W '%s' -- \"$word\")); return ;;\n", key, strings.Join(v.values[key], " "))
	}
	fmt.Fprintf(&b, "    %s) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", strings.Join(v.files, "|"))
	for _, key := range slices.Sorted(maps.Keys(v.following)) {
		fmt.Fprintf(&b, "    %s) COMPREPLY=($(compgen -W '%s' -- \"$word\")); return ;;\n", key, texts(v.following[key]))
	}
	fmt.Fprintf(&b, "  esac\n  if [[ $word == -* ]]; then COMPREPLY=($(compgen -W '%s' -- \"$word\")); return; fi\n", texts(v.flags))
	fmt.Fprintf(&b, "  COMPREPLY=($(compgen -W '%s %s' -- \"$word\"))\n", texts(v.targets), texts(v.variables))
	b.WriteString("  if [[ ${COMPREPLY[0]-} == *= ]]; then compopt -o nospace 2>/dev/null; fi\n}\ncomplete -F _bootstrap bootstrap\n")
	return b.String()
}

// bashFaults completes what follows the kind of a fault.
func (v vocabulary) bashFaults(b *strings.Builder) {
	b.WriteString("  local i kind=\"\"\n" +
		"  for ((i = 3; i < COMP_CWORD; i++)); do\n" +
		"    if [[ ${COMP_WORDS[i-2]} == fault && ${COMP_WORDS[i-1]} == add ]]; then kind=${COMP_WORDS[i]}; fi\n  done\n" +
		"  if [[ $word != -* && $word != \"=\" && ${COMP_WORDS[COMP_CWORD-1]} != \"=\" && ${COMP_WORDS[COMP_CWORD-1]} != --* ]]; then\n    case \"$kind\" in\n")
	for _, f := range v.faults {
		fmt.Fprintf(b, "      %s) COMPREPLY=($(compgen -W '%s' -- \"$word\")); compopt -o nospace 2>/dev/null; return ;;\n", f.kind, texts(f.keys))
	}
	b.WriteString("    esac\n  fi\n")
}

// quoted is a text in single quotes, as all three shells read it.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func (v vocabulary) zsh() string {
	var b strings.Builder
	b.WriteString("#compdef bootstrap\n# zsh completion for bootstrap: source <(bootstrap completion zsh)\n_bootstrap() {\n  local -a list\n" +
		"  if [[ $PREFIX == [A-Z]*=* ]]; then\n    local key=${PREFIX%%=*}\n    compset -P '*='\n    case $key in\n")
	described := func(words []word) string {
		var all []string
		for _, w := range words {
			all = append(all, quoted(strings.ReplaceAll(w.text, ":", `\:`)+":"+w.doc))
		}
		return strings.Join(all, " ")
	}
	for _, key := range slices.Sorted(maps.Keys(v.values)) {
		if !strings.HasPrefix(key, "--") {
			fmt.Fprintf(&b, "      %s) compadd -- %s ;;\n", key, strings.Join(v.values[key], " "))
		}
	}
	b.WriteString("    esac\n    return\n  fi\n")
	b.WriteString("  local i kind=''\n  for ((i = 4; i < CURRENT; i++)); do\n" +
		"    if [[ ${words[i-2]} == fault && ${words[i-1]} == add ]]; then kind=${words[i]}; fi\n  done\n" +
		"  if [[ $PREFIX != -* && ${words[CURRENT-1]} != --* ]]; then\n    case $kind in\n")
	for _, f := range v.faults {
		fmt.Fprintf(&b, "      %s) list=(%s); _describe key list -S ''; return ;;\n", f.kind, described(f.keys))
	}
	b.WriteString("    esac\n  fi\n  case ${words[CURRENT-1]} in\n")
	for _, key := range slices.Sorted(maps.Keys(v.values)) {
		if strings.HasPrefix(key, "--") {
			fmt.Fprintf(&b, "    %s) compadd -- %s; return ;;\n", key, strings.Join(v.values[key], " "))
		}
	}
	fmt.Fprintf(&b, "    %s) _files; return ;;\n", strings.Join(v.files, "|"))
	for _, key := range slices.Sorted(maps.Keys(v.following)) {
		fmt.Fprintf(&b, "    %s) list=(%s); _describe word list; return ;;\n", key, described(v.following[key]))
	}
	fmt.Fprintf(&b, "  esac\n  if [[ $PREFIX == -* ]]; then list=(%s); _describe flag list; return; fi\n", described(v.flags))
	fmt.Fprintf(&b, "  list=(%s); _describe target list\n  list=(%s); _describe variable list -S ''\n}\ncompdef _bootstrap bootstrap\n", described(v.targets), described(v.variables))
	return b.String()
}

func (v vocabulary) fish() string {
	var b strings.Builder
	b.WriteString("# fish completion for bootstrap: bootstrap completion fish | source\ncomplete -c bootstrap -f\n")
	first := func(words string) string { return quoted("not __fish_seen_subcommand_from " + words) }
	alone := first(strings.Join(slices.Sorted(maps.Keys(v.following)), " "))
	for _, w := range v.targets {
		fmt.Fprintf(&b, "complete -c bootstrap -n %s -a %s -d %s\n", alone, w.text, quoted(w.doc))
	}
	for _, key := range slices.Sorted(maps.Keys(v.following)) {
		when := "__fish_seen_subcommand_from " + key
		if key == "add" {
			when += "; and not __fish_seen_subcommand_from " + strings.Join(lab.FaultKindNames(), " ")
		}
		for _, w := range v.following[key] {
			fmt.Fprintf(&b, "complete -c bootstrap -n %s -a %s -d %s\n", quoted(when), w.text, quoted(w.doc))
		}
	}
	for _, f := range v.faults {
		for _, w := range f.keys {
			when := "__fish_seen_subcommand_from add; and __fish_seen_subcommand_from " + f.kind
			fmt.Fprintf(&b, "complete -c bootstrap -n %s -a %s -d %s\n", quoted(when), w.text, quoted(w.doc))
		}
	}
	for _, w := range v.flags {
		name := strings.TrimPrefix(w.text, "--")
		switch {
		case slices.Contains(v.files, w.text):
			fmt.Fprintf(&b, "complete -c bootstrap -l %s -r -F -d %s\n", name, quoted(w.doc))
		case v.values[w.text] != nil:
			fmt.Fprintf(&b, "complete -c bootstrap -l %s -x -a %s -d %s\n", name, quoted(strings.Join(v.values[w.text], " ")), quoted(w.doc))
		default:
			fmt.Fprintf(&b, "complete -c bootstrap -l %s -d %s\n", name, quoted(w.doc))
		}
	}
	for _, w := range v.variables {
		for _, value := range append([]string{""}, v.values[strings.TrimSuffix(w.text, "=")]...) {
			fmt.Fprintf(&b, "complete -c bootstrap -n %s -a %s -d %s\n", alone, w.text+value, quoted(w.doc))
		}
	}
	return b.String()
}
