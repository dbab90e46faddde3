internal import JWT
internal import Logging
internal import TokenService

extension AccessResources {
    /// Whether there is a file that may change.
    var hasFiles: Bool { apiKeys != nil || jwtKeys != nil }

    /// Reads the files again that have changed; those that cannot be used leave the present keys in use, and are reported once.
    ///
    /// Blocks for as long as reading takes.
    func reloadChangedFiles(_ logger: Logger) {
        do throws(APIKeyFileError) {
            if let apiKeys, apiKeys.hasChanged {
                try apiKeys.reload()
                logger.notice("the API keys have changed, there are \(apiKeys.keys.all.count) now")
            }
        } catch {
            logger.error("the API keys in use stay: \(error)")
        }
        do throws(JWTKeyFileError) {
            if let keys = try jwtKeys?.reloadIfChanged() {
                logger.notice("the keys for JWTs have changed, there are \(keys.count) now")
                // Keys for encryption are usual in such files.
                for skipped in keys.skipped where skipped.reason.isFault {
                    logger.warning("a key for JWTs is not used: \(skipped)")
                }
            }
        } catch {
            logger.error("the keys for JWTs in use stay: \(error)")
        }
    }
}
