package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/printer"
	"github.com/chatd/chatd/internal/config/configfile"
)

// ofProfile is the value of a limit that takes the chat's own one back.
const ofProfile = "default"

// limitAliases are shorter names of two flags.
var limitAliases = map[string][]string{"memory_max": {"memory"}, "pids_max": {"pids"}}

func setCommand() *cli.Command {
	flags := []cli.Flag{}
	for _, key := range chat.LimitKeys() {
		flags = append(flags, &cli.StringFlag{Name: flagOf(key), Aliases: limitAliases[key],
			Usage: "`VALUE` of limits." + key + ", as in the config, or " + ofProfile})
	}
	return command("set", ofChat(set), append(flags,
		textFlag("cpu", "`CPUS` that it may use, as in 0.5 or 2: cpu_quota of a cpu_period of 1s"),
		textFlag("profile", "the `NAME` of another policy; home and uid stay"),
		again("env", "a variable `NAME=VALUE`, no secret"),
		again("env-remove", "a variable's `NAME`"),
		again("label", "a note `KEY=VALUE`"),
		again("label-remove", "a note's `KEY`"),
		again("egress-add", "a destination `ENTRY`, see chatd egress --help"),
		again("egress-remove", "a destination `ENTRY` that goes"),
		boolFlag("force", "set a memory_max below what it holds: cgroup v2 ends processes"),
	)...)
}

// texts are the values of a flag that may be given again. Those of cli end at commas too.
type texts []string

// Set adds a value.
func (l *texts) Set(s string) error { *l = append(*l, s); return nil }

// String is empty: there is no default.
func (l *texts) String() string { return "" }

// again is a flag that may be given again.
func again(name, usage string) cli.Flag {
	return &cli.GenericFlag{Name: name, Usage: usage + "; may be given again", Value: &texts{}}
}

func textsOf(c *cli.Context, flag string) []string {
	if l, ok := c.Generic(flag).(*texts); ok {
		return *l
	}
	return nil
}

func flagOf(key string) string { return strings.ReplaceAll(key, "_", "-") }

func set(c *cli.Context, id chat.ID) error {
	p, err := setChanges(c)
	if err != nil {
		return err
	}
	if err := setEgress(c, id, &p); err != nil {
		return err
	}
	ch, err := daemon(c).Patch(c.Context, id, p)
	return answer(c, ch, err, printer.Changed(ch.Changed))
}

// setChanges reads the flags, but those of egress.
func setChanges(c *cli.Context) (p chat.Patch, err error) {
	p.Profile, p.Force = c.String("profile"), c.Bool("force")
	if c.IsSet("profile") && p.Profile == "" {
		return p, chat.Invalid("cannot set --profile: want a name")
	}
	if p.Limits, err = setLimits(c); err != nil {
		return p, err
	}
	if p.Env, err = setPairs(c, "env"); err != nil {
		return p, err
	}
	p.Labels, err = setPairs(c, "label")
	return p, err
}

// setLimits reads the flags of limits; nil without one.
func setLimits(c *cli.Context) (map[string]*json.RawMessage, error) {
	texts := map[string]string{}
	for _, key := range chat.LimitKeys() {
		if c.IsSet(flagOf(key)) {
			texts[key] = c.String(flagOf(key))
		}
	}
	if c.IsSet("cpu") {
		quota, err := cpuQuota(c.String("cpu"))
		if err != nil {
			return nil, err
		}
		texts["cpu_quota"], texts["cpu_period"] = quota, "1s"
		if quota == ofProfile {
			texts["cpu_period"] = ofProfile
		}
	}
	if len(texts) == 0 {
		return nil, nil
	}
	limits := map[string]*json.RawMessage{}
	for key, text := range texts {
		if limits[key] = nil; text == ofProfile {
			continue
		}
		v, err := configfile.LimitValue(key, longUnit(text))
		if err != nil || text == "" {
			return nil, chat.Invalid("cannot set --%s %s: want a value as in the config, or %s", flagOf(key),
				chat.Quote(text), ofProfile)
		}
		limits[key] = &v
	}
	return limits, nil
}

// longUnit is a size with the unit of the config: 1G is 1GiB.
func longUnit(text string) string {
	if n := len(text); n > 1 && strings.IndexByte("KMGT", text[n-1]) >= 0 {
		return text + "iB"
	}
	return text
}

func cpuQuota(cpus string) (string, error) {
	if cpus == ofProfile {
		return cpus, nil
	}
	n, err := strconv.ParseFloat(cpus, 64)
	if err != nil || !(n >= 0.001 && n <= 1e6) {
		return "", chat.Invalid("cannot set --cpu %s: want a number of CPUs, as in 0.5", chat.Quote(cpus))
	}
	return time.Duration(n * float64(time.Second)).String(), nil
}

// setPairs reads --NAME KEY=VALUE and --NAME-remove KEY; nil without one.
func setPairs(c *cli.Context, name string) (map[string]*string, error) {
	away := name + "-remove"
	if !c.IsSet(name) && !c.IsSet(away) {
		return nil, nil
	}
	values, err := pairs(name, textsOf(c, name))
	if err != nil {
		return nil, err
	}
	all := map[string]*string{}
	for k, v := range values {
		all[k] = &v
	}
	for _, k := range textsOf(c, away) {
		if _, twice := all[k]; twice || k == "" {
			return nil, chat.Invalid("cannot use --%s %s: want each key once", away, chat.Quote(k))
		}
		all[k] = nil
	}
	return all, nil
}

// setEgress adds to the patch what the flags of egress change of what the chat has.
func setEgress(c *cli.Context, id chat.ID, p *chat.Patch) error {
	var changes []egressEntry
	for flag, away := range map[string]bool{"egress-add": false, "egress-remove": true} {
		all, err := each(textsOf(c, flag), chat.ParseAllow)
		if err != nil {
			return err
		}
		for _, a := range all {
			changes = append(changes, egressEntry{a, away})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	ch, err := daemon(c).Get(c.Context, id)
	if err != nil {
		return err
	}
	after := applyEgress(ch, changes)
	p.EgressAdd, p.EgressRemove = &after.Add, &after.Remove
	return nil
}
