import JWT
import Metrics
import Server
import System
import TokenService
import TokenStore

extension MetricsReport {
    /// Writes what operators have to look after: the disk, reloads and backups.
    mutating func writeUpkeep() {
        if let space = server.diskSpace { write(space) }
        let lastReload = server.lastReload
        text.single(
            "token_cache_last_reload_successful", .gauge,
            "1 if the last reload of settings, certificates and keys succeeded, otherwise 0; the start counts as one.",
            lastReload.isSuccessful ? 1 : 0
        )
        text.single(
            "token_cache_last_reload_success_timestamp_seconds", .gauge,
            "When settings and certificates were last reloaded successfully, in seconds since 1970.",
            lastReload.successTime
        )
        guard let backup = server.store.metrics.lastBackup else { return }
        text.single(
            "token_cache_last_backup_successful", .gauge,
            """
            1 if the last backup of token-cache backup succeeded, otherwise 0; with --into and --after it counts once verified \
            and copied.
            """,
            backup.isSuccessful ? 1 : 0
        )
        if let time = backup.successTime {
            text.single(
                "token_cache_last_backup_success_timestamp_seconds", .gauge,
                """
                When the last successful backup of token-cache backup ended, in seconds since 1970, also before the last \
                start; with --into and --after it counts once verified and copied.
                """,
                time
            )
        }
    }

    private mutating func write(_ space: FileSystem.Space) {
        text.single(
            "token_cache_data_directory_size_bytes", .gauge, "Size of the data folder's file system.",
            space.bytes
        )
        text.single(
            "token_cache_data_directory_free_bytes", .gauge,
            "Bytes that the server may still write to the data folder's file system.", space.freeBytes
        )
        // A file system without a limit of files says 0.
        guard space.inodes > 0 else { return }
        text.single(
            "token_cache_data_directory_inodes", .gauge, "Files that the data folder's file system can hold.",
            space.inodes
        )
        text.single(
            "token_cache_data_directory_free_inodes", .gauge,
            "Files that can still be created on the data folder's file system.", space.freeInodes
        )
    }
}

extension MetricsReport {
    /// Writes who was not served, and what is remembered of those who were.
    mutating func writeAccess() {
        text.begin(
            "token_cache_access_failures_total", .counter,
            "Requests that were not served although they could be read, by reason.")
        for reason in AccessFailure.allCases {
            text.add(["reason": reason.rawValue], contexts.sum { $0.accessFailures.value(reason) })
        }
        if let tokens = server.access.jwtKeys?.content.counts {
            text.begin("token_cache_jwt_rejections_total", .counter, "JWTs that were not accepted, by reason.")
            for reason in JWTRejection.allCases {
                text.add(["reason": reason.rawValue], contexts.sum { $0.tokenRejections.value(reason) })
            }
            text.single(
                "token_cache_jwt_cache_hits_total", .counter, "JWTs that had been verified before.", tokens.hits
            )
            text.single(
                "token_cache_jwt_cache_misses_total", .counter, "JWTs that had to be verified.", tokens.misses
            )
            text.single(
                "token_cache_jwt_cache_bytes", .gauge, "Memory of the JWTs that were verified.", tokens.bytes
            )
        }
        let sessions = server.access.sessions.counts
        text.single(
            "token_cache_session_cache_hits_total", .counter, "Sessions that were found in memory.",
            sessions.hits
        )
        text.single(
            "token_cache_session_cache_misses_total", .counter, "Sessions that had to be read from the store.",
            sessions.misses
        )
        text.single(
            "token_cache_session_cache_entries", .gauge, "Sessions in memory.", sessions.entries
        )
        text.single(
            "token_cache_session_cache_bytes", .gauge, "Memory of the sessions, with their tables.",
            sessions.bytes
        )
    }
}
