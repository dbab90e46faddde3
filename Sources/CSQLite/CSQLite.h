// SQLite's C API, and wrappers for the parts that Swift cannot call: variadic functions.
#pragma once

#include <sqlite3.h>

// Macros that combine two constants, which Swift does not import.
static const int CSQLITE_IOERR_SHORT_READ = SQLITE_IOERR_SHORT_READ;
static const int CSQLITE_IOERR_WRITE = SQLITE_IOERR_WRITE;

// sqlite3_config is variadic. Turning memory statistics off saves a process-wide mutex on each allocation.
static inline int csqlite_disable_memory_statistics(void) {
    return sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
}

// sqlite3_db_config is variadic. Without this setting, the last connection checkpoints when it closes.
static inline int csqlite_disable_checkpoint_on_close(sqlite3 *database) {
    return sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)0);
}

// sqlite3_db_config is variadic. With these settings, a manipulated database file cannot make SQLite run SQL from its
// schema: no triggers, no views, no functions with side effects.
static inline void csqlite_distrust_file(sqlite3 *database) {
    sqlite3_db_config(database, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)0);
    sqlite3_db_config(database, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, (int *)0);
    sqlite3_db_config(database, SQLITE_DBCONFIG_ENABLE_VIEW, 0, (int *)0);
    sqlite3_db_config(database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, (int *)0);
}

// sqlite3_db_config is variadic. In defensive mode, SQLite ignores PRAGMA journal_mode = OFF.
static inline void csqlite_allow_no_journal(sqlite3 *database) {
    sqlite3_db_config(database, SQLITE_DBCONFIG_DEFENSIVE, 0, (int *)0);
}

// SQLITE_TRANSIENT is a macro with a cast.
static inline int csqlite_bind_copy(sqlite3_stmt *statement, int index, const void *bytes, int count) {
    return sqlite3_bind_blob(statement, index, count == 0 ? "" : bytes, count, SQLITE_TRANSIENT);
}
