// The commands that let states end: drain, evict.

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "tools/client/daemon_client.h"
#include "tools/stickyctl/commands.h"
#include "tools/stickyctl/render_text.h"

namespace sticky::stickyctl {
namespace {

using client::DaemonClient;
using client::Failed;
using client::Outcome;

Outcome<std::uint32_t> WaitMs(const Request& request) {
  return client::During(Stage::kUsage, request.options.WaitMs(kDefaultWaitMs));
}

Outcome<std::optional<std::string>> NameOf(const Request& request) {
  if (request.options.operands().empty()) return std::optional<std::string>();
  const std::string& name = request.options.operands()[0];
  if (const Status named = wire::CheckStateName(name); !named.ok()) {
    return Failed{Stage::kUsage, named.error()};
  }
  return std::optional(name);
}

// --- evict --------------------------------------------------------------------------------------

// Whoever waits for an eviction that a hold keeps from coming should not wait in the dark.
Outcome<Ok> TellWhoHolds(DaemonClient& daemon, const std::string& name, Console& console) {
  STICKY_STEP(const wire::ListReply list, daemon.AskFor<wire::ListReply>(wire::ListRequest{}));
  std::uint64_t newest = 0;  // the epoch that evict is about
  for (const wire::StateInfo& state : list.states) {
    if (state.name == name) newest = std::max(newest, state.epoch);
  }
  STICKY_STEP(wire::LeasesReply all, daemon.AskFor<wire::LeasesReply>(wire::LeasesRequest{}));
  const std::string holders =
      HoldersText(LeasesOn(name, newest, std::move(all.leases)), UsersOfThisNode());
  if (!holders.empty()) console.Note("evict '" + name + "': waits, for it is " + holders);
  return Ok{};
}

Outcome<wire::EvictReply> EvictOn(const Request& request, std::uint32_t wait_ms, Console& console) {
  STICKY_STEP(const std::optional<std::string> name, NameOf(request));
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(request.socket));
  if (wait_ms > 0) {
    const Outcome<Ok> told = TellWhoHolds(daemon, *name, console);
    if (!told.ok()) return told.failed();
  }
  return daemon.AskFor<wire::EvictReply>(wire::EvictRequest{*name, wait_ms}, wait_ms);
}

std::string EvictText(const wire::EvictReply& reply, const UserNames& users) {
  const std::string name = "state '" + Printable(reply.state.name) + "'";
  if (reply.freed) {
    return name + " is gone: " + ByteCount(reply.state.arena_bytes) + " are free again\n";
  }
  if (reply.leases.empty() && reply.state.phase == wire::StatePhase::kDraining) {
    return name + " drains: a state that is derived from it keeps it, and it goes with that one\n";
  }
  if (reply.leases.empty()) {
    return name + " is closing: nobody leases it any more, but a process still maps it\n";
  }
  const std::string holders = HoldersText(reply.leases, users);
  return name +
         Format(" drains: no new leases; it goes when the last of %zu ends%s:\n",
                reply.leases.size(), holders.empty() ? "" : (", and is " + holders).c_str()) +
         LeasesText(reply.leases, users);
}

Error StillThere(const wire::EvictReply& reply, std::uint32_t wait_ms, const UserNames& users) {
  const std::string holders = HoldersText(reply.leases, users);
  const bool is_base = reply.leases.empty() && reply.state.phase == wire::StatePhase::kDraining;
  const std::string why = is_base ? "goes when the states that are derived from it have gone"
                          : holders.empty() ? "goes when its last user ends"
                                            : "is " + holders;
  return Error{Code::kUnavailable,
               Format("evict '%s': it is still there after %.3g s of waiting, and %s; wait longer, "
                      "or end those that `stickyctl leases` shows",
                      Escape(reply.state.name).c_str(), wait_ms / 1000.0, why.c_str())};
}

// --- drain --------------------------------------------------------------------------------------

struct Wish {
  std::optional<std::string> name;  // nothing: the node
  bool resume = false;
  std::uint32_t wait_ms = 0;
};

struct Drained {
  wire::DrainReply reply;
  std::optional<wire::StateInfo> state;  // as it is now; nothing: the node, or it is gone
};

Outcome<Wish> ReadWish(const Request& request) {
  Wish wish;
  STICKY_STEP(wish.name, NameOf(request));
  STICKY_STEP(wish.wait_ms, WaitMs(request));
  wish.resume = request.options.Has("resume");
  if (wish.resume && wish.wait_ms > 0) {
    return Failed{Stage::kUsage, Error{Code::kInvalidArgument,
                                       "drain: --resume undoes a drain, which nothing waits for; "
                                       "leave out --wait"}};
  }
  return wish;
}

Outcome<Drained> DrainOn(const Request& request, const Wish& wish) {
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(request.socket));
  Drained drained;
  STICKY_STEP(drained.reply,
              daemon.AskFor<wire::DrainReply>(
                  wire::DrainRequest{wish.name, wish.resume, wish.wait_ms}, wish.wait_ms));
  if (!wish.name) return drained;
  Outcome<wire::Received> shown = daemon.Ask(wire::ShowRequest{*wish.name});
  if (!shown.ok() && shown.failed().stage != Stage::kAnswer) return shown.failed();
  if (!shown.ok()) return drained;
  if (auto* const reply = std::get_if<wire::ShowReply>(&shown.value().message.body)) {
    drained.state = std::move(reply->state);
  }
  return drained;
}

// What holds from now on, and how it ends.
std::string ResumeText(const Wish& wish, const Drained& drained) {
  if (!wish.name) return "the node takes new leases and loads again\n";
  const std::string name = "state '" + *wish.name + "'";
  const bool ends = !drained.state || drained.state->phase == wire::StatePhase::kDraining ||
                    drained.state->phase == wire::StatePhase::kClosing;
  if (ends) return name + " is being evicted, which cannot be undone\n";
  return name + " takes new leases again\n";
}

std::string DrainText(const Wish& wish, const Drained& drained, const UserNames& users) {
  if (wish.resume) return ResumeText(wish, drained);
  const std::string what = wish.name ? "state '" + *wish.name + "'" : "the node";
  const std::string evict = wish.name ? *wish.name : "NAME";
  const std::string resume = wish.name ? "drain " + *wish.name + " --resume" : "drain --resume";
  const std::vector<wire::LeaseInfo>& leases = drained.reply.leases;
  std::string text = what + " takes no new leases" + (wish.name ? "" : " and no new loads") + "; ";
  text += leases.empty() ? "none is left" : Format("%zu are left", leases.size());
  text += ". What is loaded stays: `stickyctl evict " + evict + "` frees it, `stickyctl " + resume +
          "` ends the drain.\n";
  return leases.empty() ? text : text + LeasesText(leases, users);
}

Error LeasesLeft(const Wish& wish, std::size_t count) {
  const std::string what = wish.name ? "drain '" + *wish.name + "'" : "drain the node";
  return Error{Code::kUnavailable,
               Format("%s: %zu leases are left after %.3g s of waiting; the drain goes on; wait "
                      "longer, or end those that `stickyctl leases` shows",
                      what.c_str(), count, wish.wait_ms / 1000.0)};
}

}  // namespace

int Evict(const Request& request, Console& console) {
  Outcome<std::uint32_t> wait_ms = WaitMs(request);
  if (!wait_ms.ok()) return console.Fail(wait_ms.failed());
  Outcome<wire::EvictReply> outcome = EvictOn(request, wait_ms.value(), console);
  if (!outcome.ok()) return console.Fail(outcome.failed());
  const wire::EvictReply& reply = outcome.value();
  const UserNames users = UsersOfThisNode();
  Json document = Document();
  document["state"] = StateJson(reply.state);
  document["freed"] = reply.freed;
  document["leases"] = LeasesJson(reply.leases);
  // Whoever waits wants it gone; without --wait it is enough that it will go.
  if (reply.freed || wait_ms.value() == 0) {
    console.Print(document, EvictText(reply, users));
    return kExitOk;
  }
  if (!console.json()) console.Print(document, EvictText(reply, users));
  return console.Fail({Stage::kAnswer, StillThere(reply, wait_ms.value(), users)},
                      std::move(document));
}

int Drain(const Request& request, Console& console) {
  Outcome<Wish> wish = ReadWish(request);
  if (!wish.ok()) return console.Fail(wish.failed());
  Outcome<Drained> outcome = DrainOn(request, wish.value());
  if (!outcome.ok()) return console.Fail(outcome.failed());
  const Drained& drained = outcome.value();
  Json document = Document();
  document["state"] = drained.state ? StateJson(*drained.state) : Json(nullptr);
  document["resumed"] = wish.value().resume;
  document["empty"] = drained.reply.empty;
  document["leases"] = LeasesJson(drained.reply.leases);
  const std::string text = DrainText(wish.value(), drained, UsersOfThisNode());
  if (drained.reply.empty || wish.value().wait_ms == 0) {
    console.Print(document, text);
    return kExitOk;
  }
  if (!console.json()) console.Print(document, text);
  return console.Fail({Stage::kAnswer, LeasesLeft(wish.value(), drained.reply.leases.size())},
                      std::move(document));
}

}  // namespace sticky::stickyctl
