// `stickyctl template ls`: the templates that the node's owner has installed.

#include <map>
#include <string>
#include <vector>

#include "base/text.h"
#include "tools/client/daemon_client.h"
#include "tools/stickyctl/commands.h"
#include "tools/stickyctl/render_json.h"
#include "tools/stickyctl/render_text.h"

namespace sticky::stickyctl {
namespace {

using client::DaemonClient;
using client::Outcome;

struct Found {
  std::vector<wire::InstalledTemplate> templates;
  std::map<std::string, wire::StateInfo> states;  // the newest of each name
};

Outcome<Found> Ask(const Request& request) {
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(request.socket));
  STICKY_STEP(wire::TemplatesReply reply,
              daemon.AskFor<wire::TemplatesReply>(wire::TemplatesRequest{}));
  STICKY_STEP(const wire::ListReply list, daemon.AskFor<wire::ListReply>(wire::ListRequest{}));
  Found found{std::move(reply.templates), {}};
  for (const wire::StateInfo& state : list.states) {
    wire::StateInfo& newest = found.states[state.name];
    if (state.epoch >= newest.epoch) newest = state;
  }
  return found;
}

Json TemplatesJson(const Found& found) {
  Json list = Json::array();
  for (const wire::InstalledTemplate& one : found.templates) {
    const auto state = found.states.find(one.name);
    const bool is_there = state != found.states.end();
    Json json;
    json["name"] = one.name.empty() ? Json(nullptr) : Json(one.name);
    json["path"] = one.path;
    json["build"] = one.problem.empty() ? Json(Name(one.build)) : Json(nullptr);
    json["phase"] = is_there ? Json(wire::Name(state->second.phase)) : Json(nullptr);
    json["problem"] = one.problem.empty() ? Json(nullptr) : Json(one.problem);
    list.push_back(std::move(json));
  }
  return list;
}

std::string TemplatesText(const Found& found) {
  if (found.templates.empty()) return "no installed templates\n";
  constexpr std::size_t kNameColumns = 40;
  constexpr std::size_t kPathColumns = 60;
  std::vector<Row> rows;
  std::string problems;
  for (const wire::InstalledTemplate& one : found.templates) {
    const auto state = found.states.find(one.name);
    const bool is_there = state != found.states.end();
    const bool is_usable = one.problem.empty();
    rows.push_back({is_usable ? Cell(one.name, kNameColumns) : "-",
                    is_usable ? Name(one.build) : "-",
                    !is_usable ? "unusable" : (is_there ? PhaseText(state->second) : "-"),
                    CellOfEnd(one.path, kPathColumns)});
    if (!is_usable) problems += Printable(one.problem) + "\n";
  }
  return Table({"STATE", "BUILD", "PHASE", "TEMPLATE"}, rows) + problems;
}

}  // namespace

int TemplateLs(const Request& request, Console& console) {
  Outcome<Found> found = Ask(request);
  if (!found.ok()) return console.Fail(found.failed());
  Json document = Document();
  document["templates"] = TemplatesJson(found.value());
  console.Print(document, TemplatesText(found.value()));
  return kExitOk;
}

}  // namespace sticky::stickyctl
