#include "tools/stickyctl/text_table.h"

#include <algorithm>

#include "base/text.h"

namespace sticky::stickyctl {
namespace {

constexpr std::string_view kCut = "...";

bool BeginsCharacter(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

}  // namespace

std::string Number(std::uint64_t value) {
  return Format("%llu", static_cast<unsigned long long>(value));
}

std::string Percent(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "0%";
  return Format("%.0f%%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string Duration(std::uint64_t ms) {
  const auto both = [](std::uint64_t large, const char* unit, const std::string& rest) {
    return Number(large) + " " + unit + (rest.starts_with("0 ") ? "" : " " + rest);
  };
  const std::uint64_t tenths = ms / 100;  // of a second
  const std::uint64_t minutes = ms / 60'000;
  const std::uint64_t hours = minutes / 60;
  if (ms < 1000) return Number(ms) + " ms";
  if (minutes == 0) return Format("%.1f s", static_cast<double>(tenths) / 10);
  if (hours == 0) return Number(minutes) + " min";
  if (hours < 24) return both(hours, "h", Number(minutes % 60) + " min");
  return both(hours / 24, "d", Number(hours % 24) + " h");
}

std::size_t Width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), BeginsCharacter));
}

std::string_view FirstColumns(std::string_view text, std::size_t columns) {
  std::size_t seen = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (BeginsCharacter(text[i]) && ++seen > columns) return text.substr(0, i);
  }
  return text;
}

std::string Cell(std::string_view text, std::size_t columns_max) {
  std::string cell = Printable(text);
  if (Width(cell) <= columns_max) return cell;
  return std::string(FirstColumns(cell, columns_max - kCut.size())) + std::string(kCut);
}

std::string CellOfEnd(std::string_view text, std::size_t columns_max) {
  std::string cell = Printable(text);
  const std::size_t width = Width(cell);
  if (width <= columns_max) return cell;
  const std::size_t cut_columns = width - (columns_max - kCut.size());
  return std::string(kCut) + cell.substr(FirstColumns(cell, cut_columns).size());
}

Columns::Columns(const Row& headings) : widths_(headings.size(), 0) {
  for (const std::string& heading : headings) {
    to_the_right_.push_back(heading.starts_with('>'));
    titles_.push_back(to_the_right_.back() ? heading.substr(1) : heading);
  }
  Measure(titles_);
}

void Columns::Measure(const Row& row) {
  for (std::size_t i = 0; i < row.size(); ++i) widths_[i] = std::max(widths_[i], Width(row[i]));
}

std::size_t Columns::width() const {
  std::size_t sum = 0;
  for (const std::size_t width : widths_) sum += width;
  return sum + (widths_.empty() ? 0 : 2 * (widths_.size() - 1));
}

std::string Columns::Line(const Row& row) const {
  std::string line;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::string space(widths_[i] - std::min(widths_[i], Width(row[i])), ' ');
    line += (i > 0 ? "  " : "") + (to_the_right_[i] ? space + row[i] : row[i] + space);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string Table(const Row& headings, const std::vector<Row>& rows) {
  Columns columns(headings);
  for (const Row& row : rows) columns.Measure(row);
  std::string out = columns.Headings();
  for (const Row& row : rows) out += columns.Line(row);
  return out;
}

std::string Fields(const FieldList& fields) {
  std::size_t width = 0;
  for (const auto& [key, value] : fields) width = std::max(width, key.size());
  std::string out;
  for (const auto& [key, value] : fields) {
    out += key + ":" + std::string(width - key.size() + 2, ' ') + value + "\n";
  }
  return out;
}

}  // namespace sticky::stickyctl
