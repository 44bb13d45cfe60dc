//! SOCKS5 (RFC 1928) as a client says it, byte by byte.

use std::net::IpAddr;

use super::RawConn;
use crate::gateway::Gateway;

/// The method "no authentication".
pub const NO_AUTH: u8 = 0;
/// The method "name and password" (RFC 1929).
pub const PASSWORD: u8 = 2;

/// A request with `command` for a host, which is an address or any bytes as a name, and a port.
#[must_use]
pub fn request(command: u8, host: impl AsRef<[u8]>, port: u16) -> Vec<u8> {
    let host = host.as_ref();
    let address = std::str::from_utf8(host).ok().and_then(|text| text.parse::<IpAddr>().ok());
    let (kind, address) = match address {
        Some(IpAddr::V4(ip)) => (1, ip.octets().to_vec()),
        Some(IpAddr::V6(ip)) => (4, ip.octets().to_vec()),
        None => (3, [&[u8::try_from(host.len()).unwrap()], host].concat()),
    };
    [&[5, command, 0, kind], &*address, &port.to_be_bytes()].concat()
}

/// A name and a password (RFC 1929).
#[must_use]
pub fn credentials(name: &str, password: &str) -> Vec<u8> {
    let length = |text: &str| [u8::try_from(text.len()).unwrap()];
    [&[1], &length(name)[..], name.as_bytes(), &length(password), password.as_bytes()].concat()
}

impl RawConn {
    /// Offers methods of authentication, and returns the one that was chosen.
    pub async fn socks_greet(&mut self, methods: &[u8]) -> u8 {
        self.send([&[5, u8::try_from(methods.len()).unwrap()], methods].concat()).await;
        let [version, method] = self.exact(2).await[..] else { unreachable!("two bytes were read") };
        assert_eq!(version, 5);
        method
    }

    /// Says name and password, and returns the status: 0 is success.
    pub async fn socks_login(&mut self, name: &str, password: &str) -> u8 {
        self.send(credentials(name, password)).await;
        let [version, status] = self.exact(2).await[..] else { unreachable!("two bytes were read") };
        assert_eq!(version, 1);
        status
    }

    /// Reads a reply and returns its code: 0 is success.
    pub async fn socks_reply(&mut self) -> u8 {
        let reply = self.exact(10).await;
        assert_eq!((reply[0], &reply[2..4]), (5, &[0, 1][..]), "{reply:?}");
        reply[1]
    }

    /// Asks for a tunnel to an authority and returns the code of the reply.
    pub async fn socks_connect(&mut self, authority: &str) -> u8 {
        let (host, port) = authority.rsplit_once(':').unwrap();
        self.send(request(1, host.trim_matches(['[', ']']), port.parse().unwrap())).await;
        self.socks_reply().await
    }
}

impl Gateway {
    /// Asks for a tunnel over SOCKS5 without authentication; returns the code of the reply, which is 0 for success.
    pub async fn socks(&self, authority: &str) -> (RawConn, u8) {
        let mut conn = self.open().await;
        assert_eq!(conn.socks_greet(&[NO_AUTH]).await, NO_AUTH);
        let code = conn.socks_connect(authority).await;
        (conn, code)
    }

    /// Opens a tunnel over SOCKS5 that has to be granted.
    pub async fn socks_tunnel(&self, authority: &str) -> RawConn {
        let (conn, code) = self.socks(authority).await;
        assert_eq!(code, 0, "the tunnel was refused");
        conn
    }
}
