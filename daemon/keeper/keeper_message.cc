#include "daemon/keeper/keeper_message.h"

namespace sticky::keeper {
namespace {

bool IsName(std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax) return false;
  for (const char c : name) {
    if (c <= ' ' || c > '~' || c == ':') return false;
  }
  return true;
}

void ParseLine(std::string_view line, Message& message) {
  constexpr std::string_view kName = "FDNAME=";
  if (line == "FDSTORE=1") message.store = true;
  if (line == "FDSTOREREMOVE=1") message.remove = true;
  if (line == "READY=1") message.ready = true;
  if (line == "BARRIER=1") message.barrier = true;
  if (!line.starts_with(kName)) return;
  line.remove_prefix(kName.size());
  message.name = line;
  message.has_bad_name = !IsName(message.name);
}

}  // namespace

Message Parse(std::string_view text) {
  Message message;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const bool is_last = end == std::string_view::npos;
    ParseLine({text.data(), is_last ? text.size() : end}, message);
    text.remove_prefix(is_last ? text.size() : end + 1);
  }
  return message;
}

}  // namespace sticky::keeper
