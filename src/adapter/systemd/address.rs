//! Where the user bus is: addresses as sd_bus_open_user(3) takes them.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use zbus::address::transport::{Transport, Unix, UnixSocket};
use zbus::{Address, Error};

/// The addresses of the user bus. Without environment variables it is where logind puts it.
pub(super) fn of_user_bus() -> String {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let given = variable("DBUS_SESSION_BUS_ADDRESS").and_then(|list| list.into_string().ok());
    given.unwrap_or_else(|| {
        let directory = variable("XDG_RUNTIME_DIR").map_or_else(runtime_directory, PathBuf::from);
        // What an address may not have in it is escaped.
        at(UnixSocket::File(directory.join("bus"))).to_string()
    })
}

/// Whether there is this bus, or the user's, and a user manager listens beside it: systemd has a socket
/// of its own in the same directory (`systemd/private`), from its start to its end. Then it will come
/// to the bus, or come back. Where no bus is installed it never does.
pub(crate) fn manager_listens(addresses: Option<&str>) -> bool {
    let addresses = addresses.map_or_else(of_user_bus, str::to_string);
    let listens = |there: &Path| UnixStream::connect(there.join("systemd/private")).is_ok();
    paths(&addresses).any(|bus| bus.exists() && bus.parent().is_some_and(listens))
}

/// Whether one of these addresses, or the user bus, is where systemd itself puts it, in
/// `/run/user/UID`.
pub(crate) fn is_standard(addresses: Option<&str>) -> bool {
    let addresses = addresses.map_or_else(of_user_bus, str::to_string);
    paths(&addresses).any(|bus| bus.parent() == Some(&runtime_directory()))
}

fn runtime_directory() -> PathBuf {
    format!("/run/user/{}", nix::unistd::getuid()).into()
}

/// Each address of a list, in its order, and the text that it is.
pub(super) fn each(list: &str) -> impl Iterator<Item = (&str, Result<Address, Error>)> {
    list.split(';').map(|text| (text, read(text)))
}

/// The socket of each address of a list that has one in the file system.
fn paths(list: &str) -> impl Iterator<Item = PathBuf> {
    each(list).filter_map(|(_, address)| match address.ok()?.transport() {
        Transport::Unix(unix) => match unix.path() {
            UnixSocket::File(path) => Some(path.clone()),
            _ => None,
        },
        _ => None,
    })
}

/// zbus reads all of it but escapes in the names of sockets.
fn read(text: &str) -> Result<Address, Error> {
    let address: Address = text.parse()?;
    let Transport::Unix(unix) = address.transport() else { return Ok(address) };
    let socket = match unix.path() {
        UnixSocket::File(path) => UnixSocket::File(unescaped(path.as_os_str().as_bytes())?.into()),
        UnixSocket::Abstract(name) => UnixSocket::Abstract(unescaped(name.as_bytes())?),
        other => other.clone(),
    };
    match address.guid() {
        Some(guid) => at(socket).set_guid(guid.to_owned()),
        None => Ok(at(socket)),
    }
}

fn at(socket: UnixSocket) -> Address {
    Transport::Unix(Unix::new(socket)).into()
}

/// A value without its escapes: `%20` is a space.
fn unescaped(value: &[u8]) -> Result<OsString, Error> {
    let mut bytes = value.iter().copied();
    let mut plain = Vec::new();
    while let Some(byte) = bytes.next() {
        plain.push(if byte == b'%' { escaped(bytes.next(), bytes.next())? } else { byte });
    }
    Ok(OsString::from_vec(plain))
}

fn escaped(high: Option<u8>, low: Option<u8>) -> Result<u8, Error> {
    let digit = |byte| char::from(byte).to_digit(16);
    let digits = high.and_then(digit).zip(low.and_then(digit));
    let byte = digits.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
    byte.ok_or_else(|| Error::Address("an escape has two hexadecimal digits".to_string()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn sockets(list: &str) -> Vec<String> {
        paths(list).map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn a_list_has_its_order_and_each_its_escapes() {
        let list = "unix:path=/a%20b%3bc,guid=11111111111111111111111111111111;\
                    unix:abstract=/x;tcp:host=h,port=1;unix:guid=11111111111111111111111111111111,path=/d";
        assert_eq!(sockets(list), ["/a b;c", "/d"]);
        assert_eq!(each(list).filter(|(_, address)| address.is_ok()).count(), 4);
        let (_, first) = each(list).next().expect("an address");
        assert!(first.expect("it can be read").guid().is_some());
    }

    #[test]
    fn what_cannot_be_read_does_not_hide_the_others() {
        for bad in ["unix:path=/a%2", "unix:path=/a%zz", "none", "", "unix:runtime=yes"] {
            let list = format!("{bad};unix:path=/b");
            assert!(each(&list).next().expect("an address").1.is_err(), "{bad}");
            assert_eq!(sockets(&list), ["/b"]);
        }
    }
    #[test]
    fn a_manager_is_seen_beside_any_of_them() {
        let directory = tempfile::tempdir().expect("a directory");
        let list = format!("unix:path=/none;unix:path={}/bus", directory.path().display());
        std::fs::create_dir(directory.path().join("systemd")).expect("another");
        let _manager = UnixListener::bind(directory.path().join("systemd/private"));
        assert!(!manager_listens(Some(&list)), "there is no bus");
        std::fs::write(directory.path().join("bus"), "").expect("a bus");
        assert!(manager_listens(Some(&list)));
    }
    #[test]
    fn only_the_bus_in_the_users_runtime_directory_is_the_standard_one() {
        let ours = format!("unix:path=/run/user/{}/bus", nix::unistd::getuid());
        assert!(is_standard(Some(&ours)));
        assert!(!is_standard(Some("unix:path=/tmp/bus")));
    }
}
