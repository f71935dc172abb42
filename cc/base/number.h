// Numberings as types: a slot, for example, can't be mistaken for a core, nor index what is kept
// per core.
#ifndef TF_TPU_EXT_CC_BASE_NUMBER_H_
#define TF_TPU_EXT_CC_BASE_NUMBER_H_

#include <cstddef>
#include <initializer_list>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tf_tpu_ext {

// A number, counted from 0, in the numbering that `Tag` names. Declare one with
//   using Slot = Number<class SlotTag>;
// Numbers of one numbering compare and hash, and print as the plain number; there is no arithmetic,
// since its result usually belongs to another numbering.
template <typename Tag, typename Value = int>
class Number {
 public:
  constexpr Number() = default;
  constexpr explicit Number(Value value) : value_(value) {}

  constexpr Value value() const { return value_; }

  constexpr Number& operator++() {
    ++value_;
    return *this;
  }

  friend constexpr bool operator==(Number a, Number b) { return a.value_ == b.value_; }
  friend constexpr bool operator!=(Number a, Number b) { return a.value_ != b.value_; }
  friend constexpr bool operator<(Number a, Number b) { return a.value_ < b.value_; }
  friend constexpr bool operator>(Number a, Number b) { return a.value_ > b.value_; }
  friend constexpr bool operator<=(Number a, Number b) { return a.value_ <= b.value_; }
  friend constexpr bool operator>=(Number a, Number b) { return a.value_ >= b.value_; }

  template <typename Hash>
  friend Hash AbslHashValue(Hash hash, Number number) {
    return Hash::combine(std::move(hash), number.value_);
  }
  template <typename Sink>
  friend void AbslStringify(Sink& sink, Number number) {
    sink.Append(absl::StrCat(number.value_));
  }
  friend std::ostream& operator<<(std::ostream& out, Number number) { return out << number.value_; }

 private:
  Value value_ = 0;
};

// Conversions for interfaces with plain numbers.
template <typename N>
std::vector<N> ToNumbers(const std::vector<int>& values) {
  return std::vector<N>(values.begin(), values.end());
}
template <typename N>
std::vector<int> ToValues(const std::vector<N>& numbers) {
  std::vector<int> values;
  values.reserve(numbers.size());
  for (N number : numbers) values.push_back(number.value());
  return values;
}

// The numbers from 0 to `count` - 1, in order:
//   for (Slot slot : NumbersBelow<Slot>(num_slots)) ...
template <typename N>
class NumbersBelow {
 public:
  class Iterator {
   public:
    explicit Iterator(N number) : number_(number) {}
    N operator*() const { return number_; }
    Iterator& operator++() {
      ++number_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return number_ != other.number_; }

   private:
    N number_;
  };

  explicit NumbersBelow(int count) : count_(count) {}

  Iterator begin() const { return Iterator(N(0)); }
  Iterator end() const { return Iterator(N(count_)); }

 private:
  int count_;
};

// A vector with an element for each number of one numbering, and no other index.
template <typename N, typename T>
class ByNumber {
 public:
  using value_type = T;
  using reference = typename std::vector<T>::reference;
  using const_reference = typename std::vector<T>::const_reference;

  ByNumber() = default;
  explicit ByNumber(int size) : values_(size) {}
  ByNumber(int size, const T& value) : values_(size, value) {}
  ByNumber(std::initializer_list<T> values) : values_(values) {}
  // The element at index i becomes that of N(i).
  explicit ByNumber(std::vector<T> values) : values_(std::move(values)) {}

  reference operator[](N number) { return values_[number.value()]; }
  const_reference operator[](N number) const { return values_[number.value()]; }

  int size() const { return static_cast<int>(values_.size()); }
  bool empty() const { return values_.empty(); }
  bool Has(N number) const { return number.value() >= 0 && number.value() < size(); }
  NumbersBelow<N> numbers() const { return NumbersBelow<N>(size()); }

  auto begin() { return values_.begin(); }
  auto end() { return values_.end(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

  // Adds an element for the next number, and returns that number.
  N Add(T value) {
    values_.push_back(std::move(value));
    return N(size() - 1);
  }
  void resize(int size) { values_.resize(size); }
  void clear() { values_.clear(); }

  // For interfaces with plain vectors.
  const std::vector<T>& values() const { return values_; }
  std::vector<T>& values() { return values_; }

  friend bool operator==(const ByNumber& a, const ByNumber& b) { return a.values_ == b.values_; }
  friend bool operator!=(const ByNumber& a, const ByNumber& b) { return !(a == b); }
  friend bool operator<(const ByNumber& a, const ByNumber& b) { return a.values_ < b.values_; }

 private:
  std::vector<T> values_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_NUMBER_H_
