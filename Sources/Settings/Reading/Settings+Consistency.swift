internal import HTTP

extension Settings {
    private func files(_ count: Int) -> String { count == 1 ? "1 file" : "\(count) files" }

    /// Refuses values that contradict each other although each is allowed.
    func checkTogether() throws(SettingsError) {
        guard limits.head >= limits.requestLine else {
            throw .contradiction(
                """
                limits.head is \(Quantities.text(bytes: limits.head)), less than limits.request_line with \
                \(Quantities.text(bytes: limits.requestLine)); the head includes the request line
                """
            )
        }
        // A body whose buffer has just doubled in size, and the row that is made from it.
        guard bufferLimit >= 4 * limits.body else {
            throw .contradiction(
                """
                limits.buffers is \(Quantities.text(bytes: bufferLimit)), too little for limits.body with \
                \(Quantities.text(bytes: limits.body)): one client can take four times a body
                """
            )
        }
        guard store.queueLimit >= 2 * limits.body else {
            throw .contradiction(
                """
                store.queue.max_bytes is \(Quantities.text(bytes: store.queueLimit)), too little for limits.body \
                with \(Quantities.text(bytes: limits.body)): allowed is at least twice that
                """
            )
        }
        let (certificates, keys) = (tls.certificates.count, tls.privateKeys.count)
        guard certificates == keys else {
            throw .contradiction(
                "tls.certificate names \(files(certificates)) and tls.private_key \(files(keys)); each certificate needs its key"
            )
        }
        if let address = listen.first(where: \.isTLS), certificates == 0 {
            throw .contradiction("listen has \(address), and tls.certificate and tls.private_key name no files for it")
        }
        var seen: Set<ListenAddress> = []
        for address in listen where !address.isChosenBySystem && !seen.insert(address).inserted {
            throw .contradiction("listen has \(address) twice; each address can be listened on once")
        }
        try checkStore()
        try checkAccess()
    }
}
