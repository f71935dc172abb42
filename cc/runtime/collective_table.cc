#include "cc/runtime/collective_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"

namespace tf_tpu_ext {

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

void CollectiveTable::Arrive(const CollectiveKey& key, int size, const std::string& name,
                             CollectiveParticipant participant, const Operation& operation) {
  absl::Status status;
  std::vector<CollectiveParticipant> participants;
  {
    absl::MutexLock lock(&mutex_);
    if (auto aborted = aborted_.find(key.run_id); aborted != aborted_.end()) {
      status = aborted->second;
      participants.push_back(std::move(participant));
    } else {
      std::list<Meeting>& meetings = meetings_[key];
      auto meeting = std::find_if(meetings.begin(), meetings.end(),
                                  [&](const Meeting& open) { return !open.Has(participant.rank); });
      if (meeting == meetings.end())
        meeting = meetings.insert(meetings.end(), {size, name, absl::Now(), {}});
      status = meeting->CheckFits(name, participant);
      meeting->participants.push_back(std::move(participant));
      if (status.ok() && static_cast<int>(meeting->participants.size()) < size) return;
      participants = std::move(meeting->participants);
      meetings.erase(meeting);
      if (meetings.empty()) meetings_.erase(key);
    }
  }
  if (status.ok()) {
    std::sort(participants.begin(), participants.end(),
              [](const auto& a, const auto& b) { return a.rank < b.rank; });
    status = operation(participants);
  }
  for (CollectiveParticipant& arrived : participants) arrived.done(status);
}

void CollectiveTable::Abort(RunId run_id, const absl::Status& status) {
  std::vector<CollectiveParticipant> waiting;
  {
    absl::MutexLock lock(&mutex_);
    if (!aborted_.try_emplace(run_id, status).second) return;
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
}

void CollectiveTable::Finish(RunId run_id) {
  absl::MutexLock lock(&mutex_);
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
  return description;
}

}  // namespace tf_tpu_ext
