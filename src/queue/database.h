// SQLite in a thin coat: one connection, statements that are prepared once, failures as Status.
//
// One thread at a time. Not to be used in a child of fork().
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace innkeeper::queue {

// What a commit survives. Both survive the death of every process at any moment. With `power` a commit is on
// the disk when it returns; with `processes` a power cut may take the last moments' commits, never more.
enum class Durable : uint8_t { processes, power };

// What tells our file from others', makes it, and brings one of an older version up to date.
struct Schema {
  int application = 0;
  int version = 0;
  const char* tables = nullptr;
  Status (*upgrade)(class Database&, int from) = nullptr;  // to the next version
};

// What the first bytes of a file say.
struct Header {
  // none: no file, or an empty one; unmarked: no program has written its mark, as in one that is half made.
  enum Kind : uint8_t { none, ours, foreign, unmarked, unreadable } kind = none;
  int64_t length = 0;  // of ours: how many bytes it should have
};
Header read_header(const std::string& path, const Schema& schema);

// "... is not a queue's database; it is left as it is".
Status not_ours(Code code, const std::string& path);

class Database {
 public:
  // Opens the file, or makes it. One of an older version is brought up to date at once, in one transaction.
  // Code::damaged: it is no database, or its beginning is lost. Such a file, and another program's, is not
  // given to SQLite, which would write what stands in a log of ours beside it into it.
  // A missing or empty file is made if `may_be_new` says so, and else damaged.
  static Result<Database> open(
      const std::string& path, Durable durable, const Schema& schema,
      const std::function<bool()>& may_be_new = [] { return true; });
  // One that may have lost its beginning but for what stands in its log. To be read alone.
  static Result<Database> open_part(const std::string& path, const Schema& schema);
  ~Database();
  Database(Database&& other) noexcept;
  Database& operator=(Database&&) = delete;

  // Runs statements that give nothing.
  Status execute(const char* sql);
  // A page that was read was damaged, since this was asked last. It says nothing of pages that were not read.
  bool take_damage() { return std::exchange(damage_, false); }
  // Its name leads to another file by now, or to none.
  bool moved() const;
  // Looks at all of it: what is wrong first, empty for nothing.
  Result<std::string> find_damage();
  // All that is in `other` becomes what is in this one, at once for everybody who has it open.
  Status replace_by(Database& other);
  // For statements that are made at run time.
  sqlite3* raw() const { return handle_; }
  int64_t last_id() const;
  int changes() const;

 private:
  friend class Query;
  Database(sqlite3* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  Status failure() const;
  Status use_wal();
  Status begin_file(const Schema& schema, bool may_make);
  static Result<Database> connect(const std::string& path, bool may_make);

  sqlite3* handle_ = nullptr;
  std::string path_;
  mutable bool damage_ = false;                              // failure() notes it
  std::unordered_map<const char*, sqlite3_stmt*> prepared_;  // by the literal's address
};

// One run of a prepared statement. A failure sticks: ask status() at the end. Two runs of one statement must
// not overlap.
class Query {
 public:
  // `sql` is a literal: it is known by its address.
  Query(Database& database, const char* sql);
  ~Query();
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  // In the order of the parameters. Bytes must live until the statement has run.
  Query& with(int64_t value);
  Query& with_blob(std::string_view bytes);

  // True: there is a row.
  bool step();
  // Runs to its end.
  Status run();
  int64_t integer(int column) const;
  std::string_view text(int column) const;  // until the next step
  const Status& status() const { return status_; }

 private:
  void check(int code);
  Database& database_;
  sqlite3_stmt* statement_ = nullptr;
  int parameters_ = 0;
  Status status_;
};

// BEGIN IMMEDIATE ... COMMIT; rolled back unless committed.
class Transaction {
 public:
  explicit Transaction(Database& database);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  const Status& status() const { return status_; }  // of its beginning
  Status commit();

 private:
  Database& database_;
  Status status_;
  bool open_ = false;
};

}  // namespace innkeeper::queue
