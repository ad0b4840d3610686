use headstart_lab::{Host, Lab, TorNetwork};
use std::time::{Duration, Instant};
fn main() {
    let mut hosts = vec![
        Host::new("client").delay(Duration::from_millis(20)),
        Host::new("origin").delay(Duration::from_millis(10)),
    ];
    hosts.extend(TorNetwork::hosts(Duration::from_millis(20)));
    let lab = Lab::build(hosts).unwrap();
    let work = std::env::temp_dir().join("tortmp");
    let _ = std::fs::remove_dir_all(&work);
    let begun = Instant::now();
    let tor = match TorNetwork::start(
        &lab,
        "client",
        &[("origin.test".into(), [10, 77, 2, 1].into())],
        &work,
    ) {
        Ok(t) => t,
        Err(e) => {
            println!("{e}\n{:?} {:?}", e.hint(), begun.elapsed());
            return;
        }
    };
    println!("stood after {:?}", tor.stood_after());
    for c in tor.circuits().unwrap() {
        println!("{c:?}");
    }
    let origin = lab.node("origin").unwrap();
    let mut c = origin.command("python3");
    c.args(["-m", "http.server", "80"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let _child = origin.spawn(c).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    for _ in 0..4 {
        let mut curl = lab.node("client").unwrap().command("curl");
        curl.args([
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code} %{time_starttransfer}\n",
            "--max-time",
            "30",
            "--proxy",
            &format!("socks5h://lab:lab@{}", tor.socks()),
            "http://origin.test/",
        ]);
        let mut child = lab.node("client").unwrap().spawn(curl).unwrap();
        std::thread::sleep(Duration::from_millis(450));
        println!("{:?}", tor.streams());
        child.wait().unwrap();
    }
}
