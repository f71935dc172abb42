#include "cc/runtime/host_exchange.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {
namespace {

std::vector<CollectiveParticipant> InOrderOfRank(std::vector<CollectiveParticipant> participants) {
  std::sort(participants.begin(), participants.end(),
            [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return participants;
}

std::map<Host, std::vector<Rank>> RanksOfHosts(const CollectiveKey& key, const PodShape& shape) {
  std::map<Host, std::vector<Rank>> ranks;
  for (Rank rank : key.cores.numbers()) ranks[shape.HostOf(key.cores[rank])].push_back(rank);
  return ranks;
}

std::string Description(const std::string& name, const CollectiveParticipant& participant) {
  return absl::StrCat(name, " of ", participant.elements, " elements of type ",
                      participant.element_type);
}

}  // namespace

HostExchange::HostExchange(const CollectiveKey& key, const std::string& name,
                           std::vector<CollectiveParticipant> here, CollectiveOperation operation,
                           const PodShape& shape)
    : shape_(shape),
      operation_(std::move(operation)),
      here_(InOrderOfRank(std::move(here))),
      ranks_of_(RanksOfHosts(key, shape)),
      what_(Description(name, here_.front())),
      scatters_(operation_.combine != nullptr &&
                operation_.combined_elements != here_.front().elements),
      in_parts_(operation_.combine != nullptr && !scatters_ &&
                here_.front().send_bytes >= kLeastBytesInParts && ranks_of_.size() > 2),
      next_round_(in_parts_) {}

std::set<Host> HostExchange::others() const {
  std::set<Host> others;
  for (const auto& [host, ranks] : ranks_of_) {
    if (host != shape_.host) others.insert(host);
  }
  return others;
}

std::vector<HostExchange::Piece> HostExchange::Pieces(Host from, Host to) const {
  const bool for_every_rank = here_.front().send.size() > 1;
  std::vector<Piece> pieces;
  for (Rank sender : ranks_of_.at(from)) {
    if (from == shape_.host ? !Sends(sender, to) : !Needs(sender)) continue;
    if (!for_every_rank) {
      pieces.push_back({sender, 0});
      continue;
    }
    for (Rank receiver : ranks_of_.at(to)) pieces.push_back({sender, receiver.value()});
  }
  return pieces;
}

bool HostExchange::Sends(Rank sender, Host to) const {
  const auto participant =
      absl::c_find_if(here_, [sender](const auto& each) { return each.rank == sender; });
  return !participant->targets.has_value() ||
         absl::c_any_of(ranks_of_.at(to), [participant](Rank receiver) {
           return absl::c_linear_search(*participant->targets, receiver);
         });
}

bool HostExchange::Needs(Rank sender) const {
  return absl::c_any_of(here_, [sender](const CollectiveParticipant& participant) {
    return !participant.sources.has_value() || absl::c_linear_search(*participant.sources, sender);
  });
}

HostExchange::Part HostExchange::PartOf(Host host) const {
  const auto number = std::distance(ranks_of_.begin(), ranks_of_.find(host));
  const auto hosts = static_cast<int64_t>(ranks_of_.size());
  const int64_t elements = operation_.combined_elements;
  return {elements / hosts * number,
          number + 1 == hosts ? elements : elements / hosts * (number + 1)};
}

std::vector<HostExchange::Part> HostExchange::PartsFor(Host host) const {
  if (in_parts_) return {PartOf(host)};
  if (!scatters_) return {{0, operation_.combined_elements}};
  const int64_t elements = here_.front().elements;
  std::vector<Part> parts;
  for (Rank rank : ranks_of_.at(host)) {
    parts.push_back({rank.value() * elements, (rank.value() + 1) * elements});
  }
  return parts;
}

int64_t HostExchange::ElementBytes() const {
  const int64_t elements = operation_.combined_elements;
  return elements == 0 ? 0 : here_.front().send_bytes / elements;
}

int64_t HostExchange::Bytes(const std::vector<Part>& parts) const {
  int64_t elements = 0;
  for (const Part& part : parts) elements += part.size();
  return elements * ElementBytes();
}

// The combined values of this host's participants for these parts, one after another.
absl::StatusOr<HostMessage> HostExchange::Combine(const std::vector<Part>& parts) const {
  HostMessage combined(what_, Bytes(parts));
  TF_RETURN_IF_ERROR(combined.CheckMemory());
  char* to = combined.data();
  for (const Part& part : parts) {
    std::vector<const void*> sent;
    for (const CollectiveParticipant& participant : here_) {
      sent.push_back(static_cast<const char*>(participant.send[0]) + part.begin * ElementBytes());
    }
    TF_RETURN_IF_ERROR(operation_.combine(sent, part.size(), to));
    to += part.size() * ElementBytes();
  }
  return combined;
}

absl::StatusOr<HostLinks::Messages> HostExchange::Begin() {
  HostLinks::Messages messages;
  if (operation_.combine != nullptr) {
    TF_ASSIGN_OR_RETURN(combined_, Combine(PartsFor(shape_.host)));
    for (Host host : others()) {
      if (in_parts_ || scatters_) {
        TF_ASSIGN_OR_RETURN(messages[host], Combine(PartsFor(host)));
      } else {
        messages[host] = combined_;
      }
    }
    return messages;
  }
  const int64_t bytes = here_.front().send_bytes;
  std::map<Rank, const CollectiveParticipant*> participant_of;
  for (const CollectiveParticipant& participant : here_) {
    participant_of[participant.rank] = &participant;
  }
  for (Host host : others()) {
    const std::vector<Piece> pieces = Pieces(shape_.host, host);
    HostMessage message(what_, bytes * static_cast<int64_t>(pieces.size()));
    TF_RETURN_IF_ERROR(message.CheckMemory());
    char* to = message.data();
    for (const Piece& piece : pieces) {
      if (bytes > 0) std::memcpy(to, participant_of.at(piece.from)->send[piece.buffer], bytes);
      to += bytes;
    }
    messages[host] = std::move(message);
  }
  return messages;
}

absl::StatusOr<HostLinks::Messages> HostExchange::NextRound(const HostLinks::Messages& received,
                                                            const HostLinks& links) {
  next_round_ = false;
  const Part part = PartOf(shape_.host);
  const int64_t bytes = part.size() * ElementBytes();
  std::vector<const void*> sent;
  for (const auto& [host, ranks] : ranks_of_) {
    if (host == shape_.host) {
      sent.push_back(combined_.data());
      continue;
    }
    const HostMessage& message = received.at(host);
    TF_RETURN_IF_ERROR(message.Check(what_, bytes, links.NameOf(host)));
    sent.push_back(message.data());
  }
  HostMessage all(what_, bytes);
  TF_RETURN_IF_ERROR(all.CheckMemory());
  TF_RETURN_IF_ERROR(operation_.combine(sent, part.size(), all.data()));
  combined_ = std::move(all);
  HostLinks::Messages messages;
  for (Host host : others()) messages[host] = combined_;
  return messages;
}

int64_t HostExchange::BytesFrom(Host host) const {
  if (in_parts_) return PartOf(host).size() * ElementBytes();
  if (operation_.combine != nullptr) return Bytes(PartsFor(shape_.host));
  return here_.front().send_bytes * static_cast<int64_t>(Pieces(host, shape_.host).size());
}

absl::Status HostExchange::Run(const HostLinks::Messages& received, const HostLinks& links) {
  for (const auto& [host, message] : received) {
    TF_RETURN_IF_ERROR(message.Check(what_, BytesFrom(host), links.NameOf(host)));
  }
  if (operation_.combine == nullptr) return RunWhole(received);
  if (scatters_) return RunScattered(received);
  if (!in_parts_) return RunCombined(received);
  CopyParts(received);
  return absl::OkStatus();
}

void HostExchange::CopyParts(const HostLinks::Messages& received) const {
  for (const auto& [host, ranks] : ranks_of_) {
    const Part part = PartOf(host);
    const HostMessage& message = host == shape_.host ? combined_ : received.at(host);
    for (const CollectiveParticipant& participant : here_) {
      std::memcpy(static_cast<char*>(participant.recv[0]) + part.begin * ElementBytes(),
                  message.data(), part.size() * ElementBytes());
    }
  }
}

absl::Status HostExchange::RunCombined(const HostLinks::Messages& received) const {
  std::vector<CollectiveParticipant> participants;
  for (const auto& [host, ranks] : ranks_of_) {
    const HostMessage& message = host == shape_.host ? combined_ : received.at(host);
    CollectiveParticipant part;
    part.rank = ranks.front();
    part.send = {message.data()};
    participants.push_back(std::move(part));
  }
  for (const CollectiveParticipant& participant : here_) {
    CollectiveParticipant receiver;
    receiver.rank = participant.rank;
    receiver.recv = participant.recv;
    participants.push_back(std::move(receiver));
  }
  return operation_.run(participants);
}

absl::Status HostExchange::RunScattered(const HostLinks::Messages& received) const {
  int64_t offset = 0;
  for (const CollectiveParticipant& participant : here_) {
    std::vector<const void*> sent;
    for (const auto& [host, ranks] : ranks_of_) {
      const HostMessage& message = host == shape_.host ? combined_ : received.at(host);
      sent.push_back(message.data() + offset);
    }
    TF_RETURN_IF_ERROR(operation_.combine(sent, participant.elements, participant.recv[0]));
    offset += participant.elements * ElementBytes();
  }
  return absl::OkStatus();
}

absl::Status HostExchange::RunWhole(const HostLinks::Messages& received) const {
  std::vector<CollectiveParticipant> participants;
  for (const CollectiveParticipant& participant : here_) {
    CollectiveParticipant copy = participant;
    copy.done = nullptr;
    participants.push_back(std::move(copy));
  }
  const int64_t bytes = here_.front().send_bytes;
  const size_t buffers = here_.front().send.size();
  for (const auto& [host, message] : received) {
    std::map<Rank, CollectiveParticipant> senders;
    const char* from = message.data();
    for (const Piece& piece : Pieces(host, shape_.host)) {
      CollectiveParticipant& sender = senders[piece.from];
      sender.rank = piece.from;
      sender.send.resize(buffers);
      sender.send[piece.buffer] = from;
      from += bytes;
    }
    for (auto& [rank, sender] : senders) participants.push_back(std::move(sender));
  }
  return operation_.run(InOrderOfRank(std::move(participants)));
}

void HostExchange::Finish(const absl::Status& status) {
  for (CollectiveParticipant& participant : here_) participant.done(status);
}

}  // namespace tf_tpu_ext
