// Untrusted text on a terminal.
#include "base/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace innkeeper {
namespace {

std::string shown(std::string_view text) { return printable(text, 1000); }

TEST(Printable, LettersOfEveryScriptStay) {
  for (const char* text : {"train.py --lr=0.1 'a b' \\ ~", "größer", "обучение", "訓練", "학습", "प्रशिक्षण",
                           "تدريب", "می‌خواهم", "ελληνικά", "עברית", "🙂", "n̈"})
    EXPECT_EQ(shown(text), text);
  EXPECT_EQ(printable("größer 訓", 1000, Letters::ascii), "gr\\xf6\\xdfer \\u8a13");
}

TEST(Printable, WhatATerminalObeysIsWritten) {
  EXPECT_EQ(shown("\x1b[2J\r\n\t\x7f"), "\\x1b[2J\\x0d\\x0a\\x09\\x7f");
  EXPECT_EQ(shown(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(shown("\u009b2J"), "\\x9b2J") << "the same in one character";
  EXPECT_EQ(shown("a\u202eb\u2066c\u200fd\u061ce"), "a\\u202eb\\u2066c\\u200fd\\u061ce") << "right to left";
  EXPECT_EQ(shown("a\u2028b\ufeff\u200b"), "a\\u2028b\\ufeff\\u200b");
  EXPECT_EQ(shown("\U000e0041\ue000"), "\\U000e0041\\ue000") << "tags, private use";
}

TEST(Printable, BytesThatAreNoUtf8) {
  EXPECT_EQ(shown("\xff\x9b"), "\\xff\\x9b");
  EXPECT_EQ(shown("\xc3"), "\\xc3") << "cut off";
  EXPECT_EQ(shown("\xe2\x82z"), "\\xe2\\x82z");
  EXPECT_EQ(shown("\xc0\x9b"), "\\xc0\\x9b") << "longer than needed";
  EXPECT_EQ(shown("\xe0\x80\x9b"), "\\xe0\\x80\\x9b");
  EXPECT_EQ(shown("\xf0\x82\x82\xac"), "\\xf0\\x82\\x82\\xac");
  EXPECT_EQ(shown("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a pair";
  EXPECT_EQ(shown("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond the last";
}

TEST(Printable, NothingIsCutThrough) {
  EXPECT_EQ(printable("訓練", 5), "訓");
  EXPECT_EQ(printable("a\x1b", 4), "a");
  EXPECT_EQ(in_quotes("abc", 3), "\"abc\"");
  EXPECT_EQ(in_quotes("ab\x1b", 3), "\"ab...\"");
  for (size_t most = 0; most < 60; ++most)
    EXPECT_LE(printable("größer \x1b[2J 訓練 \u202e\xff", most).size(), most);
}

TEST(Printable, ColumnsOfCharacters) {
  EXPECT_EQ(columns_of(U'a'), 1);
  EXPECT_EQ(columns_of(U'ö'), 1);
  EXPECT_EQ(columns_of(U'訓'), 2);
  EXPECT_EQ(columns_of(U'\u0308'), 0);
}

}  // namespace
}  // namespace innkeeper
