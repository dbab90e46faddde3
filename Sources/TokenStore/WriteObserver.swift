/// Learns of every change to a store's tokens and of the end of every session, so that caches drop them in time.
///
/// A store calls `willWrite` before it commits a change and `didWrite` when the change is committed or has failed,
/// before it reports the outcome. Between the two calls a read may find the former token or the new one. Tokens that expire are
/// not reported, as a read says how long its token may be kept.
///
/// Called on any thread, also while clients read; must return soon. A class, as a reference to one costs least to copy, which
/// every group of writes does.
package protocol WriteObserver: AnyObject, Sendable {
    /// The tokens of these ids are about to be stored, replaced or removed.
    func willWrite(_ ids: [[UInt8]])

    /// The change that `willWrite` announced with the same ids is over, with or without success.
    func didWrite(_ ids: [[UInt8]])

    /// These sessions are about to end: they were revoked, replaced by newer ones or erased, or have expired.
    ///
    /// Called before the change can be read; a session that `StoreHandle.findSession` finds between the two calls must not
    /// be remembered.
    func willEnd(_ sessions: [SessionKey])

    /// The change that `willEnd` announced is over, with or without success.
    func didEnd(_ sessions: [SessionKey])

    /// Any token may have changed, or expire at another time, and any session may have ended: the retention was changed, the
    /// database was opened again, or sessions have ended whose keys could not be read.
    func didChangeEverything()
}
