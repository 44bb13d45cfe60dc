//! Asking the next proxy for a tunnel with SOCKS5 (RFC 1928), with a name and a password if it wants them (RFC 1929).

use std::net::SocketAddr;

use exeat_policy::Reason;
use http::HeaderValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::failure::Failure;
use super::{Destination, refused};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NAME_AND_PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Opens a tunnel.
pub(super) async fn open(
    stream: &mut TcpStream,
    destination: Destination<'_>,
    credentials: Option<&HeaderValue>,
) -> Result<(), Failure> {
    let greeting: &[u8] = match credentials {
        None => &[VERSION, 1, NO_AUTHENTICATION],
        Some(_) => &[VERSION, 2, NO_AUTHENTICATION, NAME_AND_PASSWORD],
    };
    stream.write_all(greeting).await.map_err(refused)?;
    match (read(stream).await?, credentials) {
        ([VERSION, NO_AUTHENTICATION], _) => {}
        ([VERSION, NAME_AND_PASSWORD], Some(credentials)) => authenticate(stream, credentials.as_bytes()).await?,
        ([VERSION, NO_METHOD], None) => return Err(refused("it wants credentials")),
        ([VERSION, _], _) => return Err(refused("it wants another kind of authentication")),
        _ => return Err(refused("it did not answer in SOCKS5")),
    }
    stream.write_all(&request(destination)?).await.map_err(refused)?;
    let [version, reply, _, kind] = read(stream).await?;
    if version != VERSION {
        return Err(refused("it did not answer in SOCKS5"));
    }
    if reply != 0 {
        return Err(refused(explain(reply)));
    }
    // The address it connects from is of no use here, but it has to be read.
    let length = match kind {
        IPV4 => 4,
        IPV6 => 16,
        NAME => usize::from(u8::from_be_bytes(read(stream).await?)),
        _ => return Err(refused("it did not answer in SOCKS5")),
    };
    let mut rest = vec![0; length + 2];
    stream.read_exact(&mut rest).await.map_err(refused)?;
    Ok(())
}

async fn authenticate(stream: &mut TcpStream, credentials: &[u8]) -> Result<(), Failure> {
    let unusable = || {
        let detail = "the credentials for the next proxy are not of the form user:password, each of 1 to 255 bytes";
        Failure::new(Reason::CredentialUnavailable, detail, detail)
    };
    let colon = credentials.iter().position(|&byte| byte == b':').ok_or_else(unusable)?;
    let (user, password) = credentials.split_at(colon);
    let mut message = vec![1];
    for part in [user, password.get(1..).unwrap_or_default()] {
        let length = u8::try_from(part.len()).ok().filter(|&length| length > 0).ok_or_else(unusable)?;
        message.push(length);
        message.extend_from_slice(part);
    }
    stream.write_all(&message).await.map_err(refused)?;
    match read(stream).await? {
        [_, 0] => Ok(()),
        _ => Err(refused("it wants other credentials")),
    }
}

fn request(destination: Destination<'_>) -> Result<Vec<u8>, Failure> {
    let mut message = vec![VERSION, CONNECT, 0];
    let port = match destination {
        Destination::Address(SocketAddr::V4(address)) => {
            message.push(IPV4);
            message.extend_from_slice(&address.ip().octets());
            address.port()
        }
        Destination::Address(SocketAddr::V6(address)) => {
            message.push(IPV6);
            message.extend_from_slice(&address.ip().octets());
            address.port()
        }
        Destination::Name(host, port) => {
            let name = host.as_str();
            let length = u8::try_from(name.len()).map_err(|_| refused("the name is longer than SOCKS5 can carry"))?;
            message.extend_from_slice(&[NAME, length]);
            message.extend_from_slice(name.as_bytes());
            port
        }
    };
    message.extend_from_slice(&port.to_be_bytes());
    Ok(message)
}

/// What a reply code says (RFC 1928 section 6).
const fn explain(reply: u8) -> &'static str {
    match reply {
        2 => "its rules do not allow the connection",
        3 => "it cannot reach the network",
        4 => "it cannot reach the host",
        5 => "the server refused its connection",
        6 => "the connection timed out on its way",
        7 => "it does not serve CONNECT",
        8 => "it does not serve this kind of address",
        _ => "it failed",
    }
}

async fn read<const N: usize>(stream: &mut TcpStream) -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await.map_err(refused)?;
    Ok(bytes)
}
