#include "cc/runtime/host_exchange.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

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
      in_parts_(operation_.combine != nullptr &&
                operation_.combined_elements == here_.front().elements &&
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
    if (!for_every_rank) {
      pieces.push_back({sender, 0});
      continue;
    }
    for (Rank receiver : ranks_of_.at(to)) pieces.push_back({sender, receiver.value()});
  }
  return pieces;
}

HostExchange::Part HostExchange::PartOf(Host host) const {
  const auto number = std::distance(ranks_of_.begin(), ranks_of_.find(host));
  const auto hosts = static_cast<int64_t>(ranks_of_.size());
  const int64_t elements = operation_.combined_elements;
  return {elements / hosts * number,
          number + 1 == hosts ? elements : elements / hosts * (number + 1)};
}

int64_t HostExchange::ElementBytes() const {
  const int64_t elements = operation_.combined_elements;
  return elements == 0 ? 0 : here_.front().send_bytes / elements;
}

// The combined value of this host's participants for this part.
absl::StatusOr<HostMessage> HostExchange::Combine(Part part) const {
  HostMessage combined(what_, part.size() * ElementBytes());
  TF_RETURN_IF_ERROR(combined.CheckMemory());
  std::vector<const void*> sent;
  for (const CollectiveParticipant& participant : here_) {
    sent.push_back(static_cast<const char*>(participant.send[0]) + part.begin * ElementBytes());
  }
  TF_RETURN_IF_ERROR(operation_.combine(sent, part.size(), combined.data()));
  return combined;
}

absl::StatusOr<HostLinks::Messages> HostExchange::Begin() {
  HostLinks::Messages messages;
  if (in_parts_) {
    for (Host host : others()) {
      TF_ASSIGN_OR_RETURN(messages[host], Combine(PartOf(host)));
    }
    TF_ASSIGN_OR_RETURN(combined_, Combine(PartOf(shape_.host)));
    return messages;
  }
  if (operation_.combine != nullptr) {
    TF_ASSIGN_OR_RETURN(combined_, Combine({0, operation_.combined_elements}));
    for (Host host : others()) messages[host] = combined_;
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

absl::Status HostExchange::Run(const HostLinks::Messages& received, const HostLinks& links) {
  for (const auto& [host, message] : received) {
    int64_t bytes = here_.front().send_bytes;
    if (in_parts_) {
      bytes = PartOf(host).size() * ElementBytes();
    } else if (operation_.combine == nullptr) {
      bytes *= static_cast<int64_t>(Pieces(host, shape_.host).size());
    }
    TF_RETURN_IF_ERROR(message.Check(what_, bytes, links.NameOf(host)));
  }
  if (operation_.combine == nullptr) return RunWhole(received);
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
