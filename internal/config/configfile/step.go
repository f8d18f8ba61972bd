package configfile

import (
	"fmt"
	"io"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/internal/config"
)

// Step compiles one text for chatd-root: args are what it is, what it is called, and what is set over
// it. It touches nothing but in and out, and writes nothing if there is an error.
func Step(args []string, in io.Reader, out io.Writer) error {
	if len(args) < 2 {
		return chat.Invalid("cannot compile %d arguments: want what it is and its name", len(args))
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", chat.Quote(args[1]), err)
	}
	compiled, err := compile(args, text)
	if err != nil {
		return err
	}
	_, err = out.Write(compiled)
	return err
}

func compile(args []string, text []byte) ([]byte, error) {
	name := args[1]
	switch args[0] {
	case config.StepRules:
		p, err := rulefile.Load(name, text)
		if err != nil {
			return nil, err
		}
		return p.Compiled(), nil
	case config.StepConfig, config.StepDefaults:
		if args[0] == config.StepDefaults {
			text = nil
		}
		set, err := settingsOf(name, text, args[2:])
		if err != nil {
			return nil, err
		}
		cfg, err := Compile(name, text, set)
		if err != nil {
			return nil, err
		}
		return cfg.Compiled()
	}
	return nil, chat.Invalid("cannot compile %s: want config, defaults or rules", chat.Quote(args[0]))
}

// settingsOf reads variables and settings over a file.
func settingsOf(name string, text []byte, args []string) (all []Setting, err error) {
	variables := []string{}
	for _, arg := range args {
		if strings.HasPrefix(arg, config.VariablePrefix) {
			variables = append(variables, arg)
			continue
		}
		s, err := ParseSetting(arg)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	first, err := variablesOver(name, text, variables)
	return append(first, all...), err
}
