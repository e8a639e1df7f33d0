//! Client address of a request, for traces and records.

use std::net::{IpAddr, SocketAddr};

use http::{Extensions, HeaderMap};

use super::connections::Connections;
use crate::domain::span::Span;

/// Records address and port of a request's client on its span. A trusted proxy names its client in `X-Forwarded-For`, whose
/// port is not known.
pub fn describe(span: &mut Span, peer: SocketAddr, headers: &HeaderMap, connections: &Connections) {
    match forwarded_for(peer.ip(), headers, connections) {
        Some(client) => span.set("client.address", client.to_string()),
        None => {
            span.set("client.address", peer.ip().to_canonical().to_string());
            span.set("client.port", i64::from(peer.port()));
        }
    }
}

/// Address of a request's client, as an extension of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

impl ClientAddress {
    /// Returns the address of the client of a request that came from `peer`: its own, or behind a trusted proxy that of the
    /// client which the proxy names.
    pub fn of(peer: SocketAddr, headers: &HeaderMap, connections: &Connections) -> ClientAddress {
        let forwarded = forwarded_for(peer.ip(), headers, connections);
        ClientAddress(forwarded.unwrap_or_else(|| peer.ip().to_canonical()))
    }

    /// Returns the address of a request that passed the gate; `None` without a connection.
    pub fn in_extensions(extensions: &Extensions) -> Option<IpAddr> {
        extensions.get::<ClientAddress>().map(|address| address.0)
    }
}

/// Returns the client in `X-Forwarded-For`: the first hop, from the end, that is no trusted proxy. Hops before it may be
/// forged. `None`: the peer itself is the client.
fn forwarded_for(peer: IpAddr, headers: &HeaderMap, connections: &Connections) -> Option<IpAddr> {
    let mut client = None;
    let mut trusted = connections.is_trusted(peer);
    let lines = headers.get_all("x-forwarded-for").iter().rev();
    let hops = lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(','));
    for hop in hops {
        if !trusted {
            break;
        }
        let Some(address) = hop_address(hop.trim()) else { break };
        client = Some(address);
        trusted = connections.is_trusted(address);
    }
    client
}

/// Reads an address, with or without a port.
fn hop_address(hop: &str) -> Option<IpAddr> {
    let address = hop.parse().or_else(|_| hop.parse().map(|socket: SocketAddr| socket.ip()));
    let address = address.or_else(|_| hop.trim_start_matches('[').trim_end_matches(']').parse());
    address.ok().map(|address: IpAddr| address.to_canonical())
}
