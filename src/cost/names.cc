#include "cost/names.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/edit_distance.h"

namespace innkeeper::cost {
namespace {

constexpr size_t kNearest = 3;
constexpr std::string_view kCustom = "custom:";
constexpr double kMost = 1e9;

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }
char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}
bool is_letter(char letter) { return lower(letter) >= 'a' && lower(letter) <= 'z'; }

}  // namespace

std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words;
  for (size_t at = 0; at < name.size();) {
    if (name[at] == '.' && name.substr(at + 1, 1) == "0" && !words.empty()) {
      at += 2;
      continue;
    }
    const auto of_kind = is_digit(name[at]) ? is_digit : is_letter;
    const size_t begin = at;
    while (at < name.size() && of_kind(name[at])) ++at;
    if (at == begin) {
      ++at;
      continue;
    }
    std::string word(name.substr(begin, at - begin));
    std::transform(word.begin(), word.end(), word.begin(), lower);
    words.push_back(std::move(word));
  }
  return words;
}

std::string not_known(std::string_view what, std::string_view key, std::vector<KnownName> known) {
  // Of names at equal distance, those with the longest common beginning come first.
  const auto distance = [key](const KnownName& from) {
    const auto alike =
        std::mismatch(key.begin(), key.end(), from.key.begin(), from.key.end()).first - key.begin();
    return std::pair(edit_distance(key, from.key), -alike);
  };
  std::stable_sort(known.begin(), known.end(), [&](const KnownName& one, const KnownName& other) {
    return distance(one) < distance(other);
  });
  known.resize(std::min(known.size(), kNearest));
  std::string text = "is no " + std::string(what) + " that is known; the nearest are ";
  for (size_t i = 0; i < known.size(); ++i) {
    text += i == 0 ? "" : i + 1 == known.size() ? ", and " : ", ";
    text += known[i].name;
  }
  return text;
}

std::optional<std::vector<std::string_view>> custom_parts(std::string_view name) {
  if (!name.starts_with(kCustom)) return std::nullopt;
  std::vector<std::string_view> parts;
  for (size_t at = kCustom.size(); at <= name.size();) {
    const size_t end = std::min(name.find(':', at), name.size());
    parts.push_back(name.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::optional<double> positive_number(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && number > 0 && number <= kMost ? std::optional(number) : std::nullopt;
}

}  // namespace innkeeper::cost
