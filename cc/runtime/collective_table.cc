#include "cc/runtime/collective_table.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cc/pods/host_links.h"
#include "cc/runtime/host_exchange.h"
#include "tsl/platform/fingerprint.h"

namespace tf_tpu_ext {
namespace {

// The same on all hosts, and unique among the meetings of a run.
std::string NameBetweenHosts(const CollectiveKey& key, int64_t number) {
  const uint64_t cores = tsl::Fingerprint64(absl::StrJoin(key.cores, ","));
  return absl::StrCat("collective/", key.op_id, "/", key.cross_module, "/", absl::Hex(cores), "/",
                      number);
}

void CountMeeting(const CollectiveKey& key, const std::string& name,
                  const std::vector<CollectiveParticipant>& participants, CollectiveStats* stats) {
  CollectiveMeeting meeting;
  meeting.name = name;
  meeting.run_id = key.run_id;
  for (const CollectiveParticipant& each : participants) {
    meeting.arrivals.emplace_back(key.cores[each.rank], each.arrived);
  }
  const CollectiveParticipant& first = participants.front();
  stats->Count(std::move(meeting), first.send_bytes * static_cast<int64_t>(first.send.size()));
}

}  // namespace

std::string CollectiveKey::DebugString() const {
  return absl::StrCat("run ", run_id, ", op ", op_id, ", cores [", absl::StrJoin(cores, ", "), "]");
}

bool CollectiveTable::Meeting::Has(Rank rank) const {
  return std::any_of(participants.begin(), participants.end(),
                     [rank](const CollectiveParticipant& present) { return present.rank == rank; });
}

absl::Status CollectiveTable::Meeting::CheckFits(const std::string& other_name,
                                                 const CollectiveParticipant& other) const {
  if (participants.empty()) return absl::OkStatus();
  const CollectiveParticipant& first = participants.front();
  if (name == other_name && first.elements == other.elements &&
      first.element_type == other.element_type) {
    return absl::OkStatus();
  }
  const auto describe = [](const std::string& operation, const CollectiveParticipant& each) {
    return absl::StrCat("rank ", each.rank, " is in ", operation, " of ", each.elements,
                        " elements of type ", each.element_type);
  };
  return absl::InvalidArgumentError(absl::StrCat(
      "The replicas meet in different collectives: ", describe(name, first), ", ",
      describe(other_name, other),
      ". Every replica must run the same collectives, on values of the same shape and type, in the "
      "same order."));
}

void CollectiveTable::Connect(RunId run_id, std::shared_ptr<HostLinks> links) {
  absl::MutexLock lock(&mutex_);
  links_[run_id].links = std::move(links);
}

CollectiveTable::Links* CollectiveTable::LinksOf(const CollectiveKey& key) {
  const auto found = links_.find(key.run_id);
  if (found == links_.end()) return nullptr;
  const PodShape& shape = found->second.links->shape();
  const bool all_here =
      absl::c_all_of(key.cores, [&shape](Core core) { return shape.IsHere(core); });
  return all_here ? nullptr : &found->second;
}

void CollectiveTable::Arrive(const CollectiveKey& key, int size, const std::string& name,
                             CollectiveParticipant participant,
                             const CollectiveOperation& operation) {
  participant.arrived = absl::Now();
  absl::Status status;
  std::vector<CollectiveParticipant> participants;
  std::shared_ptr<HostLinks> links;  // null if all of the key's cores are here
  std::function<void()> meet_hosts;
  int64_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (auto aborted = aborted_.find(key.run_id); aborted != aborted_.end()) {
      status = aborted->second;
      participants.push_back(std::move(participant));
    } else {
      Links* const run_links = LinksOf(key);
      if (run_links != nullptr) {
        links = run_links->links;
        size = static_cast<int>(absl::c_count_if(
            key.cores, [&links](Core core) { return links->shape().IsHere(core); }));
      }
      std::list<Meeting>& meetings = meetings_[key];
      auto meeting = std::find_if(meetings.begin(), meetings.end(),
                                  [&](const Meeting& open) { return !open.Has(participant.rank); });
      if (meeting == meetings.end()) {
        if (run_links != nullptr) number = run_links->begun[key]++;
        meeting = meetings.insert(meetings.end(), {size, name, absl::Now(), number, {}});
      }
      status = meeting->CheckFits(name, participant);
      meeting->participants.push_back(std::move(participant));
      if (status.ok() && static_cast<int>(meeting->participants.size()) < size) return;
      participants = std::move(meeting->participants);
      number = meeting->number;
      meetings.erase(meeting);
      if (meetings.empty()) meetings_.erase(key);
      if (status.ok()) CountMeeting(key, name, participants, &stats_);
      if (status.ok() && links != nullptr) {
        auto exchange = std::make_shared<HostExchange>(key, name, std::move(participants),
                                                       operation, links->shape());
        participants.clear();
        meet_hosts = [this, exchange, links, run_id = key.run_id,
                      name = NameBetweenHosts(key, number)] {
          MeetHosts(run_id, exchange, links, name);
        };
      }
    }
  }
  if (meet_hosts != nullptr) return meet_hosts();
  if (status.ok()) {
    std::sort(participants.begin(), participants.end(),
              [](const auto& a, const auto& b) { return a.rank < b.rank; });
    status = operation.run(participants);
  }
  for (CollectiveParticipant& arrived : participants) arrived.done(status);
}

void CollectiveTable::MeetHosts(RunId run_id, const std::shared_ptr<HostExchange>& exchange,
                                const std::shared_ptr<HostLinks>& links, const std::string& name) {
  // An abort must not finish the participants while their buffers are being read.
  const absl::StatusOr<HostLinks::Messages> messages = exchange->Begin();
  absl::Status status = messages.status();
  {
    absl::MutexLock lock(&mutex_);
    if (auto aborted = aborted_.find(run_id); aborted != aborted_.end()) status = aborted->second;
    if (status.ok()) exchanging_.emplace(exchange, run_id);
  }
  if (!status.ok()) return exchange->Finish(status);
  Exchange(exchange, links, name, messages);
}

void CollectiveTable::Exchange(const std::shared_ptr<HostExchange>& exchange,
                               const std::shared_ptr<HostLinks>& links, const std::string& name,
                               const absl::StatusOr<HostLinks::Messages>& messages) {
  if (!messages.ok()) {
    if (StopExchanging(exchange)) exchange->Finish(messages.status());
    return;
  }
  links->Exchange(
      name, *messages, exchange->others(),
      [this, exchange, links, name](absl::StatusOr<HostLinks::Messages> received) {
        if (received.ok() && exchange->has_next_round()) {
          return Exchange(exchange, links, absl::StrCat(name, ", combined"),
                          exchange->NextRound(*received, *links));
        }
        if (!StopExchanging(exchange)) return;
        exchange->Finish(received.ok() ? exchange->Run(*received, *links) : received.status());
      });
}

bool CollectiveTable::StopExchanging(const std::shared_ptr<HostExchange>& exchange) {
  absl::MutexLock lock(&mutex_);
  return exchanging_.erase(exchange) > 0;
}

void CollectiveTable::Abort(RunId run_id, const absl::Status& status) {
  std::vector<CollectiveParticipant> waiting;
  std::vector<std::shared_ptr<HostExchange>> exchanges;
  std::shared_ptr<HostLinks> links;
  {
    absl::MutexLock lock(&mutex_);
    if (!aborted_.try_emplace(run_id, status).second) return;
    if (const auto found = links_.find(run_id); found != links_.end()) links = found->second.links;
    for (auto it = exchanging_.begin(); it != exchanging_.end();) {
      if (it->second != run_id) {
        ++it;
        continue;
      }
      exchanges.push_back(it->first);
      it = exchanging_.erase(it);
    }
    for (auto it = meetings_.begin(); it != meetings_.end();) {
      if (it->first.run_id != run_id) {
        ++it;
        continue;
      }
      for (Meeting& meeting : it->second) {
        for (CollectiveParticipant& participant : meeting.participants) {
          waiting.push_back(std::move(participant));
        }
      }
      it = meetings_.erase(it);
    }
  }
  for (CollectiveParticipant& participant : waiting) participant.done(status);
  for (const std::shared_ptr<HostExchange>& exchange : exchanges) exchange->Finish(status);
  if (links != nullptr) links->Abort(status);
}

void CollectiveTable::Finish(RunId run_id) {
  absl::MutexLock lock(&mutex_);
  links_.erase(run_id);
  aborted_.erase(run_id);
}

std::string CollectiveTable::Describe(RunId run_id, absl::Duration age) const {
  std::string description;
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, meetings] : meetings_) {
    const Meeting& meeting = meetings.front();
    if (key.run_id != run_id || absl::Now() - meeting.since < age) continue;
    std::vector<Core> here;
    for (const CollectiveParticipant& participant : meeting.participants) {
      here.push_back(key.cores[participant.rank]);
    }
    absl::StrAppend(&description, "cores [", absl::StrJoin(here, ", "), "] wait in ", meeting.name,
                    " for the other cores of [", absl::StrJoin(key.cores, ", "), "]; ");
  }
  if (const auto found = links_.find(run_id); found != links_.end()) {
    description += found->second.links->Describe(age);
  }
  return description;
}

}  // namespace tf_tpu_ext
