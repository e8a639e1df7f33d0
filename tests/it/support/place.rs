//! Ports that stay taken while nobody listens on them.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Port that refuses connections until its owner listens again. Without a socket that is bound to it, the system may give the
/// port to somebody's outgoing connection meanwhile.
#[derive(Debug)]
pub struct Place(TcpSocket);

impl Place {
    /// Takes a port right after its listener was dropped; connections that it accepted may live on.
    pub fn hold(address: SocketAddr) -> Place {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).unwrap();
        Place(socket)
    }

    /// Listens on it.
    pub fn listen(self) -> TcpListener {
        self.0.listen(1024).unwrap()
    }
}
