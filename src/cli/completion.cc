// innkeeper completion bash | zsh | fish: prints a shell's completion script, made from the program's own
// commands and options.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/need_subcommand.h"

namespace innkeeper::cli {
namespace {

// Returns the words that may follow an option; empty: any word.
std::vector<std::string> values_of(const std::string& option) {
  if (option == "--by") return {"free", "ratio", "power", "utilization"};
  return {};
}

struct Word {
  std::string text;
  std::string help;
  bool takes_value = false;
};

struct Level {
  std::vector<std::string> path;  // Names of the commands below the program.
  std::vector<Word> commands, options;
};

void walk(const CLI::App& app, const std::vector<std::string>& path, std::vector<Level>& levels) {
  Level level;
  level.path = path;
  for (const CLI::App* command : app.get_subcommands(is_for_people))
    level.commands.push_back({command->get_name(), command->get_description(), false});
  for (const CLI::Option* option : app.get_options([](const CLI::Option*) { return true; })) {
    const bool value = option->get_expected_max() > 0 && option->get_type_size() != 0;
    for (const std::string& name : option->get_lnames())
      level.options.push_back({"--" + name, option->get_description(), value});
    for (const std::string& name : option->get_snames())
      level.options.push_back({"-" + name, option->get_description(), value});
  }
  levels.push_back(level);
  for (const CLI::App* command : app.get_subcommands(is_for_people)) {
    std::vector<std::string> below = path;
    below.push_back(command->get_name());
    walk(*command, below, levels);
  }
}

std::string names(const Level& level) {
  std::vector<std::string> words;
  for (const Word& word : level.commands) words.push_back(word.text);
  for (const Word& word : level.options) words.push_back(word.text);
  if (level.path == std::vector<std::string>{"completion"})
    words.insert(words.end(), {"bash", "zsh", "fish"});
  return joined(words, " ");
}

// The same script serves zsh, through its bashcompinit.
std::string bash(const std::vector<Level>& levels) {
  std::string cases, commands, values;
  for (const Level& level : levels) {
    cases += fmt::format("    '{}') words='{}' ;;\n", joined(level.path, " "), names(level));
    for (const Word& word : level.commands) {
      std::vector<std::string> path = level.path;
      path.push_back(word.text);
      commands += (commands.empty() ? "" : "|") + ("'" + joined(path, " ") + "'");
    }
    for (const Word& word : level.options) {
      const std::vector<std::string> known = values_of(word.text);
      if (!known.empty() && values.find(word.text + ")") == std::string::npos)
        values += fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$current\")); return ;;\n",
                              word.text, joined(known, " "));
    }
  }
  return fmt::format(R"(# innkeeper completion bash
_innkeeper() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} path='' words='' i
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${{COMP_WORDS[i]}} == -- ]]; then
      COMPREPLY=($(compgen -c -f -- "$current"))
      return
    fi
    case "${{path:+$path }}${{COMP_WORDS[i]}}" in
      {}) path="${{path:+$path }}${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$previous" in
{}  esac
  case "$path" in
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -F _innkeeper innkeeper
)",
                     commands, values, cases);
}

std::string zsh(const std::vector<Level>& levels) {
  return "#compdef innkeeper\nautoload -U +X bashcompinit && bashcompinit\n" + bash(levels);
}

std::string fish_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return result + "'";
}

std::string fish(const std::vector<Level>& levels) {
  std::string text = "# innkeeper completion fish\ncomplete -c innkeeper -f\n";
  for (const Level& level : levels) {
    std::string when = "__fish_use_subcommand";
    if (!level.path.empty()) when = "__fish_seen_subcommand_from " + level.path.back();
    std::vector<std::string> below;
    for (const Word& word : level.commands) below.push_back(word.text);
    const bool nested = !level.path.empty() && !below.empty();
    const std::string commands_when =
        nested ? when + "; and not __fish_seen_subcommand_from " + joined(below, " ") : when;
    for (const Word& word : level.commands)
      text += fmt::format("complete -c innkeeper -n {} -a {} -d {}\n", fish_quoted(commands_when), word.text,
                          fish_quoted(word.help));
    for (const Word& word : level.options) {
      const bool is_long = word.text.starts_with("--");
      text += fmt::format("complete -c innkeeper -n {} {} {} -d {}", fish_quoted(when), is_long ? "-l" : "-s",
                          word.text.substr(is_long ? 2 : 1), fish_quoted(word.help));
      if (word.takes_value) text += " -x";
      if (const auto known = values_of(word.text); !known.empty())
        text += " -a " + fish_quoted(joined(known, " "));
      text += "\n";
    }
  }
  return text;
}

int completion(const CLI::App& program, const std::string& shell) {
  std::vector<Level> levels;
  walk(program, {}, levels);
  if (shell == "bash")
    print(bash(levels));
  else if (shell == "zsh")
    print(zsh(levels));
  else if (shell == "fish")
    print(fish(levels));
  else
    fail(kUsage, "no completion for " + shell + ": expected bash, zsh or fish");
  return kDone;
}

}  // namespace

void register_completion(CLI::App& program) {
  CLI::App& command =
      *program.add_subcommand("completion", "Print a shell's completion script: bash, zsh or fish");
  const auto shell = std::make_shared<std::string>();
  command.add_option("SHELL", *shell, "bash, zsh or fish")->required();
  command.footer("As in: source <(innkeeper completion bash); innkeeper completion fish | source");
  on_run(command, [&program, shell] { return completion(program, *shell); });
}

}  // namespace innkeeper::cli
