//! Sockets that the program listens on.

use std::io;
use std::net::SocketAddr;

use anyhow::Context;
use tokio::net::{TcpListener, TcpSocket};

use super::config::ServerSettings;

/// Most connections that wait to be accepted. Linux takes the lower of this and `net.core.somaxconn` (4096 by default).
const BACKLOG: u32 = 4096;

/// Sockets that have their addresses and do not listen yet: connections are refused until then.
pub(super) struct BoundSockets {
    clients: (SocketAddr, TcpSocket),
    admin: Option<(SocketAddr, TcpSocket)>,
}

impl BoundSockets {
    /// Takes the addresses `server.listen` and, where one is configured, `server.admin_listen`.
    ///
    /// # Errors
    /// An address is taken, or is not one of this machine. Without this error, missing metrics would be noticed only when they
    /// are needed.
    pub(super) fn bind(server: &ServerSettings) -> anyhow::Result<BoundSockets> {
        let clients = (server.listen, bind(server.listen).with_context(|| no_clients(server.listen))?);
        let admin = match server.admin_listen {
            None => None,
            Some(address) => Some((address, bind(address).with_context(|| no_metrics(address))?)),
        };
        Ok(BoundSockets { clients, admin })
    }

    /// Listens for clients and, where an address is configured, for those who read metrics.
    ///
    /// # Errors
    /// Another program listens on an address by now.
    pub(super) fn listen(self) -> anyhow::Result<(TcpListener, Option<TcpListener>)> {
        let (address, socket) = self.clients;
        let clients = socket.listen(BACKLOG).with_context(|| no_clients(address))?;
        let Some((address, socket)) = self.admin else { return Ok((clients, None)) };
        let admin = socket.listen(BACKLOG).with_context(|| no_metrics(address))?;
        tracing::info!("metrics are at http://{}/metrics", admin.local_addr()?);
        Ok((clients, Some(admin)))
    }
}

fn no_clients(address: SocketAddr) -> String {
    format!(
        "cannot listen on {address} (server.listen): name a free address there (MCPPROXY__SERVER__LISTEN)"
    )
}

fn no_metrics(address: SocketAddr) -> String {
    format!(
        "cannot listen on {address} for /metrics (server.admin_listen): name a free address there \
         (MCPPROXY__SERVER__ADMIN_LISTEN), or none (\"\") to do without"
    )
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // a restart must not wait until the kernel has forgotten the connections of the previous process
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
