//! Sockets that the program listens on.

use std::io;
use std::net::SocketAddr;

use anyhow::Context;
use tokio::net::{TcpListener, TcpSocket};

use super::config::ServerSettings;

/// Most connections that wait to be accepted. Linux takes the lower of this and `net.core.somaxconn` (4096 by default).
const BACKLOG: u32 = 4096;

/// Listens for clients on the address `server.listen`.
///
/// # Errors
/// The address is taken, or is not one of this machine.
pub(super) fn clients(server: &ServerSettings) -> anyhow::Result<TcpListener> {
    listen(server.listen).with_context(|| format!("cannot listen on {} (server.listen)", server.listen))
}

/// Listens on `server.admin_listen`; `None` where none is configured.
///
/// # Errors
/// As [`clients`]. Without this error, missing metrics would be noticed only when they are needed.
pub(super) fn admin(server: &ServerSettings) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = server.admin_listen else { return Ok(None) };
    let listener = listen(address).with_context(|| {
        format!(
            "cannot listen on {address} for /metrics (server.admin_listen): name a free address there, or none (\"\") to \
             do without"
        )
    })?;
    tracing::info!("metrics are at http://{}/metrics", listener.local_addr()?);
    Ok(Some(listener))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // a restart must not wait until the kernel has forgotten the connections of the previous process
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
