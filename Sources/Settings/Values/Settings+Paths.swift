internal import Audit
internal import FoundationEssentials

extension Settings {
    /// The absolute path of the data folder, so that messages name it whatever folder the program was started in.
    package var dataDirectoryPath: String { URL(filePath: dataDirectory).standardizedFileURL.path }

    /// The path of the audit log's running key.
    package var auditKeyPath: String {
        audit.keyFile.isEmpty ? dataDirectoryPath + "/" + RunningKey.standardName : audit.keyFile
    }

    /// The database of `store.url`; nil for SQLite.
    package var storeURL: StoreURL? { store.url.isEmpty ? nil : try? StoreURL(store.url) }
}
