// A thin wrapper of SQLite: one connection, statements that are prepared once, failures as Status.
//
// Thread safety: one thread uses it at a time. A child of fork() must not use it.
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

// Events that a commit survives. Both modes survive the death of every process at any moment. With
// `power` a commit is on the disk when it returns. With `processes` a power cut may lose the commits
// of the last moments, never more.
enum class Durable : uint8_t { processes, power };

// Marks of the queue's database file, the statements that create its tables, and the
// upgrade from an older version.
struct Schema {
  int application = 0;
  int version = 0;
  const char* tables = nullptr;
  // Upgrades to the next version; null: no older version exists.
  Status (*upgrade)(class Database&, int from) = nullptr;
};

// Result of reading the first bytes of a file.
struct Header {
  // `none`: no file, or an empty one. `unmarked`: the file carries no program's
  // mark, as a half-made database does.
  enum Kind : uint8_t { none, ours, foreign, unmarked, unreadable } kind = none;
  int64_t length = 0;  // Length that a database of kind `ours` should have, bytes.
};
Header read_header(const std::string& path, const Schema& schema);

// "... is not a queue's database; it is left as it is".
Status not_ours(Code code, const std::string& path);

class Database {
 public:
  // Opens the file or creates it, and upgrades an older version at once in one transaction. Fails with
  // Code::damaged if the file is no database or its beginning is lost. Such a file, and another program's
  // file, is never given to SQLite: SQLite would write a log of ours that lies beside it into it. A missing
  // or empty file is created if `may_be_new` returns true, else it counts as damaged.
  static Result<Database> open(
      const std::string& path, Durable durable, const Schema& schema,
      const std::function<bool()>& may_be_new = [] { return true; });
  // Opens a database that may have lost its beginning except for the pages in
  // its log. Use it for reading only.
  static Result<Database> open_part(const std::string& path, const Schema& schema);
  ~Database();
  Database(Database&& other) noexcept;
  Database& operator=(Database&&) = delete;

  // Runs statements that return no rows.
  Status execute(const char* sql);
  // Returns whether a page read since the last call was damaged. It says nothing
  // about pages that were not read.
  bool take_damage() { return std::exchange(damage_, false); }
  // Returns whether the file's name now leads to another file or to none.
  bool moved() const;
  // Checks the whole database. Returns a description of the damage, whose first
  // line names the first; empty: none.
  Result<std::string> find_damage();
  // Replaces the whole content by that of `other`, at once for every process that has the database open.
  Status replace_by(Database& other);
  // The SQLite handle, for statements that are composed at run time.
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
  mutable bool damage_ = false;  // Set by failure().
  // Prepared statements; key: address of the literal.
  std::unordered_map<const char*, sqlite3_stmt*> prepared_;
};

// One run of a prepared statement. The first failure stays until the end; check status() then. Two runs of
// one statement must not overlap.
class Query {
 public:
  // `sql` must be a literal: the statement is identified by its address.
  Query(Database& database, const char* sql);
  ~Query();
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  // Binds the parameters in order. The bytes must live until the statement has run.
  Query& with(int64_t value);
  Query& with_blob(std::string_view bytes);

  // Returns true if a row was read.
  bool step();
  // Runs the statement to its end.
  Status run();
  int64_t integer(int column) const;
  std::string_view text(int column) const;  // Valid until the next step().
  const Status& status() const { return status_; }

 private:
  void check(int code);
  Database& database_;
  sqlite3_stmt* statement_ = nullptr;
  int parameters_ = 0;
  Status status_;
};

// BEGIN IMMEDIATE ... COMMIT; the destructor rolls back unless commit() was called.
class Transaction {
 public:
  explicit Transaction(Database& database);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  const Status& status() const { return status_; }  // Status of BEGIN.
  Status commit();

 private:
  Database& database_;
  Status status_;
  bool open_ = false;
};

}  // namespace innkeeper::queue
