// Package settings reads the configuration from bootstrap.yaml, the environment and KEY=VALUE, and knows where each
// value comes from.
package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// noPassword is what GitHub wants as the password where the user name is a token.
const noPassword = "x-oauth-basic"

// DefaultConfigFile is read where no other file is named.
const DefaultConfigFile = "bootstrap.yaml"

// LabPlace is where the values come from that a lab decides.
const LabPlace = "the lab"

// Configuration is a steps.Config and where each of its values comes from.
type Configuration struct {
	config.Config
	Places map[string]string // field → "bootstrap.yaml:3:12"; fields that are not in it have their default
	// FromBackup tells that fields without a place have the value that a backup has of them, and not their default.
	FromBackup bool

	Literals []Literal

	// Where the Hetzner token comes from besides the environment; at most one is set.
	TokenFile    string
	TokenCommand string

	Overrides string // folder of the operator's manifests/ and bootstrap/, which may be missing

	versionsWritten string // VERSIONS as a source has it, where config.Config has the name of the set itself
}

// Literal is a value that a manifest has in the place of a variable: it counts, whatever is configured.
type Literal struct {
	Field string // of the configuration, which has this value; empty: none has
	Place string // "manifests/cluster.yaml:83"
	// Note says what counts, where that is not what was configured; empty: it is.
	Note string
}

// Decide gives a variable the value that a manifest has in its place.
func (c *Configuration) Decide(v config.Variable, value string, l Literal) error {
	if err := v.Set(&c.Config, value); err != nil {
		return usage.Errorf("%s: %w", l.Place, err)
	}
	c.Places = maps.Clone(c.Places)
	c.Places[v.Field] = l.Place
	c.Literals = append(slices.Clone(c.Literals), l)
	return nil
}

// Literal is the value that a manifest has in the place of a field's variable; false: it has none.
func (c Configuration) Literal(field string) (Literal, bool) {
	i := slices.IndexFunc(c.Literals, func(l Literal) bool { return l.Field == field })
	if i < 0 {
		return Literal{}, false
	}
	return c.Literals[i], true
}

// Sources are where a configuration is read from.
type Sources struct {
	File string // bootstrap.yaml; empty: the default one, where it exists
	Dir  string // folder of the operator's manifests/ and bootstrap/; empty: that of the file
	// Node is the mapping of a configuration that is a part of another file, in place of File; Name is that file's.
	Node        *yaml.Node
	Name        string
	Base        []byte // a configuration to begin with in place of the defaults: a backup's
	Environment map[string]string
	Values      []Assignment // KEY=VALUE, in their order
	// Table is what is known of versions; nil: the table inside this command.
	Table *config.Table
	// Kept tells which version set the cluster of a configuration keeps; nil: there is no such cluster.
	Kept    func(config.Config) Kept
	WorkDir string // what relative paths are relative to; empty: the process's own
}

// Load reads the configuration: the defaults, over them the version set that is chosen, over it the file, over it
// the environment, over that KEY=VALUE. Every error is a usageError and says
// where its value was written. An empty variable in the environment counts as
// none, an empty KEY= as the empty value.
func Load(from Sources) (Configuration, error) {
	table := from.Table
	if table == nil {
		table = config.Shipped()
	}
	c := Configuration{Config: config.DefaultsOf(table), Places: map[string]string{}}
	if err := c.begin(from.Base); err != nil {
		return Configuration{}, err
	}
	based := c.Versions
	if err := c.readSource(from); err != nil {
		return Configuration{}, err
	}
	var err error
	if c.Overrides, err = overridesFolder(from); err != nil {
		return Configuration{}, err
	}
	var problems []error
	set := func(v config.Variable, value, place string) {
		if err := c.refuseTwice(v, place); err != nil {
			problems = append(problems, err)
			return
		}
		if err := v.Set(&c.Config, value); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", place, err))
		}
		c.Places[v.Field] = place
	}
	for _, v := range config.Variables() {
		if value := from.Environment[v.Name]; value != "" {
			set(v, value, "environment variable "+v.Name)
		}
	}
	for _, value := range from.Values {
		set(value.Variable, value.Value, "argument "+value.place())
	}
	if err := refused(problems); err != nil {
		return Configuration{}, err
	}
	if _, chosen := c.Places["versions"]; chosen {
		c.versionsWritten = c.Versions
	}
	if c.FromBackup && c.FollowsCluster() {
		c.Versions = based
	} else if err := c.useVersionSet(from.kept(c.Config)); err != nil {
		return Configuration{}, err
	}
	if err := c.Check(); err != nil {
		return Configuration{}, err
	}
	return c, nil
}

// begin takes the configuration out of a backup as what others write over. Its
// values count as defaults, and where its token comes from does not.
func (c *Configuration) begin(base []byte) error {
	was := Configuration{Config: c.Config, Places: map[string]string{}}
	file := yamlFile{path: "the backup's configuration", config: &was}
	file.read(base)
	if err := refused(file.problems); err != nil {
		return err
	}
	if len(base) > 0 {
		named := ""
		if _, is := was.Places["versions"]; is {
			named = was.Versions
		}
		was.Versions = c.Table().EarlierSet(named)
	}
	c.Config, c.FromBackup = was.Config, len(base) > 0
	return nil
}

// Check validates the configuration and says where each wrong value was written.
func (c Configuration) Check() error {
	var problems []error
	for _, e := range c.Validate() {
		problems = append(problems, fmt.Errorf("%s: %w%s", c.placeOf(e), e, c.besides(e)))
	}
	return refused(problems)
}

// Passwords are those in the configuration's addresses, as they are meant and as an address writes them. A user name
// without a password, or with one that says that there is none, is a token.
func (c Configuration) Passwords() (all []string) {
	var addresses []string
	for _, v := range config.Variables() {
		addresses = append(addresses, v.Get(c.Config))
	}
	for _, a := range c.Addons {
		addresses = append(addresses, a.Repository)
	}
	for _, address := range addresses {
		u, err := url.Parse(address)
		if err != nil || u.Host == "" {
			continue
		}
		user, written, _ := strings.Cut(u.User.String(), ":")
		password, _ := u.User.Password()
		all = append(all, password, written)
		if password == "" || password == noPassword {
			all = append(all, u.User.Username(), user)
		}
	}
	return all
}

// placeOf is where the value that is wrong was written. Where two do not go
// together, it is the place of each that is no default.
func (c Configuration) placeOf(e config.FieldError) string {
	var places []string
	for _, field := range append([]string{e.Field}, e.With...) {
		if place := c.Place(field); place != "default" && !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	if len(places) == 0 {
		return c.Place(e.Field)
	}
	return strings.Join(places, ", ")
}

// besides says which of the values that do not go together is a default, where
// the place is that of the other.
func (c Configuration) besides(e config.FieldError) string {
	written := c.Place(e.Field) != "default"
	if place := c.placeOf(e); written || place == c.Place(e.Field) {
		return ""
	}
	return fmt.Sprintf(" (%s has its default)", e.Field)
}

// Place is where the value of a field comes from: "bootstrap.yaml:3:12", "default".
func (c Configuration) Place(field string) string {
	if place, ok := c.Places[field]; ok {
		return place
	}
	if i := strings.LastIndexAny(field, ".["); i > 0 { // of a worker pool: where the pool is
		return c.Place(field[:i])
	}
	return "default"
}

// readSource reads the configuration file, or the part of another file.
func (c *Configuration) readSource(from Sources) error {
	if from.Node == nil {
		return c.readFile(from.File, from.WorkDir)
	}
	file := yamlFile{path: from.Name, config: c}
	file.mapping(from.Node)
	return refused(file.problems)
}

// readFile reads the configuration file; without a path the default one, where
// it exists.
func (c *Configuration) readFile(path, workDir string) error {
	asked := path != ""
	if !asked {
		path = DefaultConfigFile
	}
	data, err := os.ReadFile(InFolder(workDir, path))
	if errors.Is(err, fs.ErrNotExist) && !asked {
		return nil
	}
	if err != nil {
		return usage.Errorf("read the configuration: %w", err)
	}
	file := yamlFile{path: path, config: c}
	file.read(data)
	return refused(file.problems)
}

// yamlFile reads one file into a configuration and collects what is wrong.
type yamlFile struct {
	path     string
	config   *Configuration
	problems []error
}

// refused is all that is wrong; nil: nothing is.
func refused(problems []error) error {
	if len(problems) == 0 {
		return nil
	}
	return &usage.Error{Err: errors.Join(problems...)}
}

func (f *yamlFile) problem(n *yaml.Node, format string, args ...any) {
	f.problems = append(f.problems, fmt.Errorf("%s: %w", f.place(n), fmt.Errorf(format, args...)))
}

func (f *yamlFile) place(n *yaml.Node) string {
	return fmt.Sprintf("%s:%d:%d", f.path, n.Line, n.Column)
}

// read accepts one document with one mapping of known keys to plain values.
func (f *yamlFile) read(data []byte) {
	decoder := yaml.NewDecoder(strings.NewReader(string(data)))
	var document, second yaml.Node
	err := decoder.Decode(&document)
	if document.Kind == 0 && err != nil && err.Error() == "EOF" {
		return // empty, or comments only
	}
	if err != nil {
		f.problems = append(f.problems, fmt.Errorf("%s: %w", f.path, err)) // says the line by itself
		return
	}
	if decoder.Decode(&second) == nil {
		f.problem(&second, "a second document begins here: the configuration is one")
		return
	}
	root, err := Expand(document.Content[0])
	if err != nil {
		f.problems = append(f.problems, fmt.Errorf("%s: %w", f.path, err))
		return
	}
	f.mapping(root)
}

// mapping reads the keys of a configuration.
func (f *yamlFile) mapping(root *yaml.Node) {
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return
	}
	if root.Kind != yaml.MappingNode {
		f.problem(root, "the configuration is a mapping of keys to values")
		return
	}
	seen := map[string]*yaml.Node{}
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if first := seen[key.Value]; first != nil {
			f.problem(key, "%s is given a second time (first in line %d)", key.Value, first.Line)
			continue
		}
		seen[key.Value] = key
		f.entry(key, value)
	}
	if f.config.TokenFile != "" && f.config.TokenCommand != "" {
		f.problem(seen[TokenCommandKey], "%s and %s are both given: keep one", TokenFileKey, TokenCommandKey)
	}
}

// entry reads one key with its value. A value is not repeated in an error about
// its key: it may be a token in the wrong place.
func (f *yamlFile) entry(key, value *yaml.Node) {
	variables := config.Variables()
	i := slices.IndexFunc(variables, func(v config.Variable) bool { return v.Field == key.Value })
	if i < 0 && key.Value != TokenFileKey && key.Value != TokenCommandKey {
		names := []string{TokenFileKey, TokenCommandKey}
		for _, v := range variables {
			names = append(names, v.Field)
		}
		f.problem(key, "there is no key %q%s", key.Value, usage.DidYouMean("", asField(key.Value), names))
		return
	}
	if i >= 0 && variables[i].Lists() {
		value = f.words(key.Value, value)
	}
	if value.Kind == yaml.SequenceNode {
		switch key.Value {
		case workersField:
			f.workers(value)
			return
		case addonsField:
			f.addons(value)
			return
		}
	}
	if value.Kind != yaml.ScalarNode {
		f.problem(value, "%s takes one plain value: write %s: VALUE%s", key.Value, key.Value, onlyOne(value))
		return
	}
	if value.Tag == "!!null" {
		return // "key:" leaves the default
	}
	switch {
	case key.Value == TokenFileKey:
		f.config.TokenFile = value.Value
		f.config.Places[TokenFileKey] = f.place(value)
	case key.Value == TokenCommandKey:
		f.config.TokenCommand = value.Value
		f.config.Places[TokenCommandKey] = f.place(value)
	default:
		if err := variables[i].Set(&f.config.Config, value.Value); err != nil {
			f.problem(value, "%w", err)
		}
		f.config.Places[variables[i].Field] = f.place(value)
	}
}

// onlyOne is the value of a list of one, as a message may have it.
func onlyOne(value *yaml.Node) string {
	if value.Kind != yaml.SequenceNode || len(value.Content) != 1 || value.Content[0].Kind != yaml.ScalarNode {
		return ""
	}
	return ", here " + kube.WithoutCredentials(value.Content[0].Value)
}

// words makes a list of plain values the text that a variable of several values has: "fsn1,nbg1". Everything else
// stays as it is.
func (f *yamlFile) words(key string, value *yaml.Node) *yaml.Node {
	if value.Kind != yaml.SequenceNode {
		return value
	}
	var all []string
	for _, one := range value.Content {
		if one.Kind != yaml.ScalarNode || one.Tag == "!!null" {
			f.problem(one, "%s is a list of plain values", key)
			continue
		}
		all = append(all, one.Value)
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: strings.Join(all, ","), Line: value.Line, Column: value.Column}
}

// asField is a key as the file would have it where it is a variable's name, or
// its words are put together in another way: serverType for SERVER_TYPE.
func asField(key string) string {
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s)) }
	for _, v := range config.Variables() {
		if plain(v.Field) == plain(key) || v.Name == strings.ToUpper(key) {
			return v.Field
		}
	}
	return key
}

// Environ makes a map of os.Environ.
func Environ(list []string) map[string]string {
	m := make(map[string]string, len(list))
	for _, entry := range list {
		key, value, _ := strings.Cut(entry, "=")
		m[key] = value
	}
	return m
}

// Variable finds one of steps.Variables by name; the names here are constants
// that a test holds against them.
func Variable(name string) config.Variable {
	variables := config.Variables()
	return variables[slices.IndexFunc(variables, func(v config.Variable) bool { return v.Name == name })]
}

// Field finds one of steps.Variables by its key in bootstrap.yaml, which exists.
func Field(field string) config.Variable {
	variables := config.Variables()
	return variables[slices.IndexFunc(variables, func(v config.Variable) bool { return v.Field == field })]
}

// InFolder is a path as seen from a folder; an absolute one is itself.
func InFolder(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// overridesFolder is where the operator's manifests/ and bootstrap/ are looked
// for: --dir, else the folder of the configuration file, else the working
// directory.
func overridesFolder(from Sources) (string, error) {
	switch {
	case from.Dir != "":
		dir := InFolder(from.WorkDir, from.Dir)
		info, err := os.Stat(dir)
		if err == nil && !info.IsDir() {
			err = errors.New("it is not a folder")
		}
		if err != nil {
			return "", usage.Errorf("--dir %s: %w", from.Dir, err)
		}
		return dir, nil
	case from.File != "":
		return filepath.Dir(InFolder(from.WorkDir, from.File)), nil
	case from.WorkDir != "":
		return from.WorkDir, nil
	}
	return ".", nil
}
