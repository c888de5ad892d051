// Runs a Tiltfile in Tilt's dialect of Starlark with stand-ins for the builtins, and prints their calls as JSON.
//
//	check HELM TILTFILE [--name=value...]
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	starlarkjson "go.starlark.net/lib/json"
	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"
	"go.yaml.in/yaml/v3"
)

// The parameters of each builtin, in Tilt's order; the required ones come before the first that ends in `?`.
var builtins = map[string][]string{
	"allow_k8s_contexts": {"contexts"},
	"default_registry":   {"host", "host_from_cluster?", "single_name?"},
	"local_resource": {"name", "cmd?", "deps?", "trigger_mode?", "resource_deps?", "ignore?", "auto_init?", "serve_cmd?", "labels?",
		"allow_parallel?", "links?", "tags?", "env?", "dir?", "serve_env?", "serve_dir?"},
	"sync": {"local_path", "remote_path"},
	"docker_build": {"ref", "context", "build_args?", "dockerfile?", "dockerfile_contents?", "live_update?", "match_in_env_vars?",
		"ignore?", "only?", "entrypoint?", "container_args?", "target?", "ssh?", "network?", "secret?", "extra_tag?", "cache_from?",
		"pull?", "platform?", "extra_hosts?"},
	"custom_build": {"ref", "command", "deps", "tag?", "disable_push?", "skips_local_docker?", "live_update?", "match_in_env_vars?",
		"ignore?", "entrypoint?", "container_args?", "command_bat?", "outputs_image_ref_to?", "image_deps?", "env?", "dir?"},
	"k8s_yaml":   {"yaml", "allow_duplicates?"},
	"watch_file": {"file_path"},
	"k8s_resource": {"workload", "new_name?", "port_forwards?", "extra_pod_selectors?", "trigger_mode?", "resource_deps?", "objects?",
		"auto_init?", "pod_readiness?", "links?", "labels?", "discovery_strategy?"},
	"helm":               {"pathToChartDir", "name?", "namespace?", "values?", "set?", "kube_version?", "skip_crds?"},
	"read_file":          {"file_path", "default?"},
	"encode_yaml":        {"object"},
	"decode_yaml_stream": {"yaml"},
}

var configBuiltins = map[string][]string{
	"define_string": {"name", "args?", "usage?"},
	"define_bool":   {"name", "args?", "usage?"},
}

type call struct {
	name string
	args *starlark.Dict
}

var calls []call

func main() {
	helm, file := os.Args[1], os.Args[2]
	predeclared := starlark.StringDict{"TRIGGER_MODE_MANUAL": starlark.MakeInt(1), "TRIGGER_MODE_AUTO": starlark.MakeInt(0)}
	for name, parameters := range builtins {
		predeclared[name] = standIn(name, parameters, helm)
	}
	config := starlark.StringDict{"parse": starlark.NewBuiltin("parse", parse)}
	for name, parameters := range configBuiltins {
		config[name] = standIn("config."+name, parameters, helm)
	}
	predeclared["config"] = starlarkstruct.FromStringDict(starlark.String("config"), config)
	dialect := &syntax.FileOptions{Set: true, While: true, TopLevelControl: true, GlobalReassign: true, Recursion: true}
	if _, err := starlark.ExecFileOptions(dialect, &starlark.Thread{Name: "tilt"}, file, nil, predeclared); err != nil {
		if failed, ok := err.(*starlark.EvalError); ok {
			fail(failed.Backtrace())
		}
		fail(err.Error())
	}
	var list []starlark.Value
	for _, each := range calls {
		list = append(list, starlark.Tuple{starlark.String(each.name), each.args})
	}
	fmt.Println(encode(starlark.NewList(list)))
}

func standIn(name string, parameters []string, helm string) *starlark.Builtin {
	return starlark.NewBuiltin(name, func(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		values := make([]starlark.Value, len(parameters))
		pairs := []any{}
		for at, parameter := range parameters {
			pairs = append(pairs, parameter, &values[at])
		}
		if err := starlark.UnpackArgs(name, args, kwargs, pairs...); err != nil {
			return nil, err
		}
		given := starlark.NewDict(len(parameters))
		for at, parameter := range parameters {
			if values[at] != nil {
				_ = given.SetKey(starlark.String(strings.TrimSuffix(parameter, "?")), values[at])
			}
		}
		calls = append(calls, call{name, given})
		return result(name, given, helm)
	})
}

func result(name string, given *starlark.Dict, helm string) (starlark.Value, error) {
	switch name {
	case "sync":
		return given, nil
	case "encode_yaml":
		// JSON is YAML.
		return starlark.String(encode(member(given, "object"))), nil
	case "read_file":
		text, err := os.ReadFile(text(member(given, "file_path")))
		return starlark.String(text), err
	case "decode_yaml_stream":
		return decodeStream(text(member(given, "yaml")))
	case "helm":
		arguments := []string{"template", text(member(given, "name")), text(member(given, "pathToChartDir"))}
		if list, ok := member(given, "values").(*starlark.List); ok {
			for each := range list.Elements() {
				arguments = append(arguments, "--values", text(each))
			}
		}
		output, err := exec.Command(helm, arguments...).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("helm: %s", output)
		}
		return starlark.String(output), nil
	}
	return starlark.None, nil
}

// The settings after `--`, of those that were defined.
func parse(*starlark.Thread, *starlark.Builtin, starlark.Tuple, []starlark.Tuple) (starlark.Value, error) {
	settings := starlark.NewDict(0)
	for _, argument := range os.Args[3:] {
		name, value, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
		kind := ""
		for _, each := range calls {
			if text(member(each.args, "name")) == name && strings.HasPrefix(each.name, "config.") {
				kind = each.name
			}
		}
		switch kind {
		case "config.define_bool":
			_ = settings.SetKey(starlark.String(name), starlark.Bool(value != "false"))
		case "config.define_string":
			_ = settings.SetKey(starlark.String(name), starlark.String(value))
		default:
			return nil, fmt.Errorf("unknown flag: --%s", name)
		}
	}
	return settings, nil
}

func decodeStream(stream string) (starlark.Value, error) {
	var list []starlark.Value
	decoder := yaml.NewDecoder(strings.NewReader(stream))
	for {
		var document any
		if decoder.Decode(&document) != nil {
			return starlark.NewList(list), nil
		}
		if document != nil {
			list = append(list, toStarlark(document))
		}
	}
}

func toStarlark(value any) starlark.Value {
	switch value := value.(type) {
	case map[string]any:
		dict := starlark.NewDict(len(value))
		for key, each := range value {
			_ = dict.SetKey(starlark.String(key), toStarlark(each))
		}
		return dict
	case []any:
		var list []starlark.Value
		for _, each := range value {
			list = append(list, toStarlark(each))
		}
		return starlark.NewList(list)
	case bool:
		return starlark.Bool(value)
	case int:
		return starlark.MakeInt(value)
	case nil:
		return starlark.None
	}
	return starlark.String(fmt.Sprint(value))
}

func member(dict *starlark.Dict, name string) starlark.Value {
	value, _, _ := dict.Get(starlark.String(name))
	return value
}

func text(value starlark.Value) string {
	text, _ := starlark.AsString(value)
	return text
}

func encode(value starlark.Value) string {
	encoded, err := starlark.Call(&starlark.Thread{}, starlarkjson.Module.Members["encode"], starlark.Tuple{value}, nil)
	if err != nil {
		fail(err.Error())
	}
	return text(encoded)
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message)
	os.Exit(1)
}
