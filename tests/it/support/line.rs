//! A line to the database that can be cut: a TCP proxy in front of Postgres.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::place::Place;

/// What the line does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Passes everything.
    Open,
    /// Takes connections and never says a word; what was under way is not heard of again, ever.
    Hangs,
    /// Takes connections and resets them; what was under way is reset.
    Resets,
    /// Refuses connections; what was under way is reset.
    Refuses,
    /// Passes one connection, and resets those after it.
    PassesOne,
}

/// The line. Its end is the end of every connection on it.
pub struct Line {
    address: SocketAddr,
    way: watch::Sender<Way>,
    /// Where it leads.
    port: Arc<AtomicU16>,
    /// From now on nothing is heard of what is under way.
    hush: watch::Sender<()>,
    cuts: watch::Sender<()>,
    accepted: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Line {
    /// An open line to a port of this machine.
    pub async fn to(port: u16) -> Line {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let way = watch::Sender::new(Way::Open);
        let (hush, cuts) = (watch::Sender::new(()), watch::Sender::new(()));
        let accepted = Arc::new(AtomicUsize::new(0));
        let (way_now, counted) = (way.subscribe(), Arc::clone(&accepted));
        let port = Arc::new(AtomicU16::new(port));
        let ends = Ends {
            port: Arc::clone(&port),
            way: way_now,
            hush: hush.clone(),
            cuts: cuts.clone(),
            accepted: counted,
        };
        let task = tokio::spawn(ends.serve(listener));
        Line { address, way, port, hush, cuts, accepted, task }
    }

    /// A database's URL, along this line.
    pub fn url(&self, direct: &str) -> String {
        let (head, rest) = direct.split_once("@127.0.0.1:").unwrap();
        let (_, name) = rest.split_once('/').unwrap();
        format!("{head}@127.0.0.1:{}/{name}", self.address.port())
    }

    /// Changes the way. When it returns, no connection of the old way carries a byte any more.
    pub async fn turn(&self, way: Way) {
        self.way.send_replace(way);
        let over = match way {
            Way::Open | Way::PassesOne => return,
            Way::Hangs => &self.hush,
            Way::Resets | Way::Refuses => &self.cuts,
        };
        over.send_replace(());
        tokio::time::timeout(Duration::from_secs(5), over.closed()).await.expect("the line turns");
    }

    /// From now on new connections lead to another port.
    pub fn lead_to(&self, port: u16) {
        self.port.store(port, Ordering::Relaxed);
    }

    /// Resets every connection; new ones are taken as before.
    pub fn cut(&self) {
        self.cuts.send_replace(());
    }

    /// Connections that were asked for so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

struct Ends {
    port: Arc<AtomicU16>,
    way: watch::Receiver<Way>,
    hush: watch::Sender<()>,
    cuts: watch::Sender<()>,
    accepted: Arc<AtomicUsize>,
}

impl Ends {
    async fn serve(mut self, mut listener: TcpListener) {
        let address = listener.local_addr().unwrap();
        let mut passed_one = false;
        loop {
            let way = *self.way.borrow_and_update();
            if way == Way::Refuses {
                drop(listener);
                let place = Place::hold(address);
                if self.way.changed().await.is_err() {
                    return;
                }
                listener = place.listen();
                continue;
            }
            let accepted = tokio::select! {
                changed = self.way.changed() => if changed.is_ok() { None } else { return },
                accepted = listener.accept() => accepted.ok(),
            };
            let Some((client, _)) = accepted else { continue };
            self.accepted.fetch_add(1, Ordering::Relaxed);
            // what comes between the subscription and the look at the way is heard of by one of the two
            let (hush, cuts) = (self.hush.subscribe(), self.cuts.subscribe());
            let way = *self.way.borrow();
            match way {
                Way::Resets | Way::Refuses => reset(client),
                Way::PassesOne if std::mem::replace(&mut passed_one, true) => reset(client),
                Way::Hangs => drop(tokio::spawn(keep_quiet(client, None, cuts))),
                Way::Open | Way::PassesOne => {
                    let port = self.port.load(Ordering::Relaxed);
                    drop(tokio::spawn(carry(client, port, hush, cuts)));
                }
            }
        }
    }
}

/// An RST instead of an orderly end.
fn reset(stream: TcpStream) {
    #[expect(
        deprecated,
        reason = "lingering for no time does not block, which is what the warning is about"
    )]
    stream.set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}

async fn carry(
    mut client: TcpStream,
    port: u16,
    mut hush: watch::Receiver<()>,
    mut cuts: watch::Receiver<()>,
) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await else { return reset(client) };
    drop((client.set_nodelay(true), server.set_nodelay(true)));
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = cuts.changed() => {
            reset(client);
            reset(server);
        }
        _ = hush.changed() => {
            drop(hush);
            keep_quiet(client, Some(server), cuts).await;
        }
    }
}

/// Neither end hears anything more, until the line is cut.
async fn keep_quiet(client: TcpStream, server: Option<TcpStream>, mut cuts: watch::Receiver<()>) {
    drop(cuts.changed().await);
    reset(client);
    server.into_iter().for_each(reset);
}
