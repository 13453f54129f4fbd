// Text in columns and readable quantities: the parts that everything stickyctl prints for people is
// made of.
//
// Thread: any thread.

#ifndef STICKY_TOOLS_STICKYCTL_TEXT_TABLE_H_
#define STICKY_TOOLS_STICKYCTL_TEXT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sticky::stickyctl {

using Row = std::vector<std::string>;  // one cell a column
using FieldList = std::vector<std::pair<std::string, std::string>>;

std::string Number(std::uint64_t value);

// "41%"; "0%" of nothing.
std::string Percent(std::uint64_t part, std::uint64_t whole);

// "12 ms", "3.4 s", "5 min", "2 h 10 min", "2 h", "3 d 4 h".
std::string Duration(std::uint64_t ms);

// Columns on a terminal, taking every character for one column wide. `text`: UTF-8.
std::size_t Width(std::string_view text);

// The first `columns` columns of `text`, which is UTF-8.
std::string_view FirstColumns(std::string_view text, std::size_t columns);

// Untrusted text for a cell: printable, and cut past `columns_max` columns (at least 4), with "..."
// for what was cut off.
std::string Cell(std::string_view text, std::size_t columns_max);
// As Cell, but what is cut off is the beginning: of a path the end tells more.
std::string CellOfEnd(std::string_view text, std::size_t columns_max);

// Columns that are as wide as their widest cell so far, two blanks between them, no blanks at a
// line's end; for tables whose rows come one after another.
class Columns {
 public:
  // A column whose heading begins with '>' is set to the right.
  explicit Columns(const Row& headings);

  void Measure(const Row& row);
  // Of a whole line.
  std::size_t width() const;
  std::string Headings() const { return Line(titles_); }
  // `row`: as many cells as there are headings. Ends with a line break.
  std::string Line(const Row& row) const;

 private:
  Row titles_;
  std::vector<bool> to_the_right_;
  std::vector<std::size_t> widths_;
};

// All rows below their headings.
std::string Table(const Row& headings, const std::vector<Row>& rows);

// "key:  value" lines with the values below one another.
std::string Fields(const FieldList& fields);

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_TEXT_TABLE_H_
