package import EventLoop
package import Settings

/// All listeners for clients, and the TLS context that they share.
package struct ClientListeners: Sendable {
    package let all: [ClientListener]
    /// Nil without a TLS listener.
    package let tls: TLSContext?

    /// Takes over the sockets that the service manager passed, and binds the other addresses of `listen`.
    ///
    /// - Parameters:
    ///   - settings: The addresses and certificates.
    ///   - passedSockets: The sockets that the service manager passed.
    ///   - openOthers: Opens the listeners that are not for clients. It is called here so that an address which the
    ///     settings name twice is recognized whichever listener is opened second.
    package static func open<Others>(
        _ settings: Settings, _ passedSockets: [PassedSocket], openOthers: () throws(StartError) -> Others
    ) throws(StartError) -> (ClientListeners, Others) {
        let plan = try ListenPlan(settings.listen, passedSockets)
        let tls = plan.usesTLS ? try tlsContext(settings) : nil
        do throws(StartError) {
            var listeners: [ClientListener] = []
            for (socket, address) in plan.adopted {
                let clients = TLSClientAuthentication(of: address, among: settings.listen)
                listeners.append(try ClientListener.adopt(socket, as: address, tls: tls, clients: clients))
            }
            for address in plan.bound {
                let clients = TLSClientAuthentication(of: address, among: settings.listen)
                listeners += try ClientListener.open(address, tls: tls, clients: clients)
            }
            for index in listeners.indices { listeners[index].number = index }
            return (ClientListeners(all: listeners, tls: tls), try openOthers())
        } catch {
            // The program that uses the address may be this one, through an earlier entry of the settings.
            guard error.isAddressInUse,
                let conflict = AddressConflict.find(listen: plan.bound, administration: settings.admin.listen)
            else { throw error }
            throw .conflict(conflict)
        }
    }

    /// Loads the certificates of all `https://` listeners.
    static func tlsContext(_ settings: Settings) throws(StartError) -> TLSContext {
        guard !settings.tls.certificates.isEmpty else {
            throw .passedSockets("one is for https, but tls.certificate and tls.private_key name no files")
        }
        do throws(TLSConfigurationError) {
            return try TLSContext(TLSFiles(settings), applicationProtocols: ["http/1.1"])
        } catch {
            throw .tls("\(error)")
        }
    }
}
