/*
 * A client for lorad in one file: copy it into your Android app, under a package name of your own.
 * It needs OkHttp 4 or 5, minSdk 26 and the permission INTERNET; the README beside this file has the
 * network security configuration. All calls block: make them off the main thread.
 *
 * Any app can listen on lorad's port while lorad isn't running. So each connection begins with a
 * question: the other end has to prove, to a fresh nonce, that it holds the server key from the
 * pairing and listens on the very port that was dialled. OkHttp is given the connection after that,
 * so neither the token nor a text ever goes to anybody else.
 */
package lorad

import java.io.EOFException
import java.io.IOException
import java.net.InetAddress
import java.net.Proxy
import java.net.Socket
import java.net.SocketAddress
import java.net.SocketTimeoutException
import java.net.URLEncoder
import java.security.MessageDigest
import java.security.SecureRandom
import java.util.Base64
import java.util.concurrent.TimeUnit
import javax.crypto.Mac
import javax.crypto.spec.SecretKeySpec
import javax.net.SocketFactory
import okhttp3.MediaType.Companion.toMediaType
import okhttp3.OkHttpClient
import okhttp3.Request
import okhttp3.RequestBody.Companion.toRequestBody
import okhttp3.Response
import okhttp3.ResponseBody
import org.json.JSONArray
import org.json.JSONException
import org.json.JSONObject

/** A field at fault, as lorad names it (`body.examples[1].label`), and what is wrong with it. */
data class FieldError(val field: String, val message: String)

/** lorad said no (RFC 9457); in [retryAfterSeconds], if told, the same request may succeed. */
class LoradException(
    val status: Int,
    val detail: String,
    val errors: List<FieldError>,
    val retryAfterSeconds: Double?,
) : Exception("$status: $detail")

/** What answers on the port isn't the daemon of this pairing, or the pairing was replaced. */
class NotLoradException(message: String) : IOException(message)

/** Where your app keeps token and server key: encrypted under a key of the Android Keystore. */
interface CredentialStore {
    /** What was saved last, or null. */
    fun load(): String?

    fun save(credentials: String)
}

/**
 * lorad as one paired app sees it; for any number of threads.
 *
 * What passes (too much for now, a busy database, a full disk, a broken connection) is tried again
 * up to [attempts] times, as long as lorad asks for no more than [patienceSeconds]. [timeoutSeconds]
 * is the longest silence on a connection: above 30, if the first prediction may take so long.
 */
class LoradClient(
    store: CredentialStore,
    private val patienceSeconds: Double = 10.0,
    private val attempts: Int = 4,
    timeoutSeconds: Long = 30,
) {
    private val kept = JSONObject(checkNotNull(store.load()) { "expected credentials, found none; pair" })
    private val address = "http://127.0.0.1:${kept.getInt("port")}"
    private val http = plainHttp(timeoutSeconds)
        .socketFactory(ProvingSockets(kept.getString("server_key_id"), kept.getString("server_key")))
        .build()

    /** Make an adapter; without [labels] its examples may have any. */
    fun createAdapter(name: String, labels: List<String>? = null): JSONObject =
        JSONObject().put("name", name).putOpt("labels", labels?.let(::JSONArray))
            .let { request("POST", "/v1/adapters", it) }

    /** How an adapter is: its `examples` counted, its `active_version`, and `why` it isn't training. */
    fun adapter(name: String): JSONObject = request("GET", "/v1/adapters/${encoded(name)}")

    /** Hand in up to 500 (`input`, `label`, `external_id`): all are on the disk then, or none is. */
    fun postExamples(adapter: String, examples: List<JSONObject>): JSONObject =
        JSONObject().put("examples", JSONArray(examples))
            .let { request("POST", "/v1/adapters/${encoded(adapter)}/examples", it) }

    fun deleteExample(adapter: String, externalId: String): JSONObject =
        request("DELETE", "/v1/adapters/${encoded(adapter)}/examples?external_id=${encoded(externalId)}")

    fun deleteAllExamples(adapter: String): JSONObject =
        request("DELETE", "/v1/adapters/${encoded(adapter)}/examples?all=true")

    /** Ask for the labels of up to 100 texts; [prior] corrects them by the labels of late. */
    fun predict(adapter: String, inputs: List<String>, prior: Boolean = false): JSONObject =
        JSONObject().put("inputs", JSONArray(inputs)).put("prior", prior)
            .let { request("POST", "/v1/adapters/${encoded(adapter)}/predict", it) }

    /** Ask for a training; the answer is its run. [options]: `when`, `warm_start`, `training`. */
    fun train(adapter: String, options: JSONObject = JSONObject()): JSONObject =
        request("POST", "/v1/adapters/${encoded(adapter)}/runs", options)

    /** How far a run is. */
    fun run(id: Long): JSONObject = request("GET", "/v1/runs/$id")

    /**
     * Tell [onEvent] what happens to a run (`snapshot`, changes, `end`) until its end, over as many
     * connections as it takes. (Catch [onEvent]'s own IOExceptions: they would count as broken ones.)
     */
    fun watch(run: Long, onEvent: (event: String, data: JSONObject) -> Unit) {
        var last: String? = null
        var failures = 0
        while (true) {
            val asked = asked("/v1/runs/$run/events")
            last?.let { asked.header("Last-Event-ID", it) }
            try {
                http.newCall(asked.build()).execute().use { response ->
                    if (response.code == 204) return // nothing comes after the last event
                    if (response.code != 200) throw refusal(response)
                    readEvents(response.body) { id, event, data ->
                        last = id
                        failures = 0
                        onEvent(event, data)
                        if (event == "end") return
                    }
                }
            } catch (error: IOException) {
                if (error is NotLoradException || failures == attempts) throw error
            }
            failures++
            pause(minOf(0.2 * failures, patienceSeconds))
        }
    }

    /** Any other route. Throws LoradException, NotLoradException and, at last, IOException. */
    fun request(method: String, path: String, body: JSONObject? = null): JSONObject {
        val bytes = body?.toString().orEmpty().toByteArray().toRequestBody(body?.let { JSON })
        val asked = asked(path).method(method, bytes.takeUnless { method == "GET" })
        if (method != "GET") asked.header("Idempotency-Key", randomBase64(16))
        var attempt = 0
        while (true) {
            attempt++
            val wait = try {
                return http.newCall(asked.build()).execute().use(::answer)
            } catch (error: LoradException) {
                val after = error.retryAfterSeconds.takeIf { error.status in PASSING }
                if (after == null || after > patienceSeconds || attempt == attempts) throw error
                after
            } catch (error: IOException) {
                if (error is NotLoradException || attempt == attempts) throw error
                minOf(0.2 * attempt, patienceSeconds)
            }
            pause(wait)
        }
    }

    private fun asked(path: String) =
        Request.Builder().url(address + path).header("Authorization", "Bearer ${kept.getString("token")}")

    companion object {
        /** Turn the code that `lorad pair` shows into credentials, and save them. */
        fun pair(port: Int, code: String, store: CredentialStore) {
            val body = JSONObject().put("code", code).toString().toByteArray().toRequestBody(JSON)
            val asked = Request.Builder().url("http://127.0.0.1:$port/v1/pair").post(body).build()
            val given = plainHttp(30).build().newCall(asked).execute().use(::answer)
            store.save(given.put("port", port).toString())
        }
    }
}

private val JSON = "application/json".toMediaType()
private val PASSING = setOf(429, 503, 507)

private fun plainHttp(timeoutSeconds: Long): OkHttpClient.Builder = OkHttpClient.Builder()
    .proxy(Proxy.NO_PROXY)
    .followRedirects(false)
    .connectTimeout(5, TimeUnit.SECONDS)
    .readTimeout(timeoutSeconds, TimeUnit.SECONDS)
    .writeTimeout(timeoutSeconds, TimeUnit.SECONDS)

private fun answer(response: Response): JSONObject =
    if (response.isSuccessful) JSONObject(textOf(response.body)) else throw refusal(response)

private fun refusal(response: Response): LoradException {
    val problem = try {
        JSONObject(textOf(response.body))
    } catch (_: JSONException) {
        JSONObject()
    }
    val errors = problem.optJSONArray("errors") ?: JSONArray()
    return LoradException(
        response.code,
        problem.optString("detail"),
        List(errors.length(), errors::getJSONObject)
            .map { FieldError(it.getString("field"), it.getString("message")) },
        response.header("Retry-After")?.toDoubleOrNull(),
    )
}

private fun textOf(body: ResponseBody?): String = body?.string().orEmpty()

/** Tell [each] the id, the event and the data of a text/event-stream whose data is JSON. */
private inline fun readEvents(body: ResponseBody?, each: (String, String, JSONObject) -> Unit) {
    var id = ""
    var event = "message"
    val data = StringBuilder()
    while (true) {
        val line = body?.source()?.readUtf8Line() ?: return
        val value = line.substringAfter(':', "").removePrefix(" ")
        when (line.substringBefore(':')) {
            "id" -> id = value
            "event" -> event = value
            "data" -> data.append(value).append('\n')
        }
        if (line.isEmpty()) {
            if (data.isNotEmpty()) each(id, event, JSONObject(data.toString()))
            event = "message"
            data.setLength(0)
        }
    }
}

/** Makes sockets whose other end has proved to be our daemon by the time they are connected. */
private class ProvingSockets(private val keyId: String, private val key: String) : SocketFactory() {
    override fun createSocket(): Socket = object : Socket() {
        override fun connect(endpoint: SocketAddress, timeout: Int) {
            try {
                super.connect(endpoint, timeout)
                demandProof(this)
            } catch (error: IOException) {
                close()
                throw error
            }
        }
    }

    private fun demandProof(socket: Socket) {
        val host = "127.0.0.1:${socket.port}"
        val nonce = randomBase64(32)
        val question = "GET /v1/hello?nonce=$nonce&key=${encoded(keyId)} HTTP/1.1\r\nHost: $host\r\n\r\n"
        socket.getOutputStream().write(question.toByteArray())
        val proof = PROOF.find(readAnswer(socket))?.groupValues?.get(1).orEmpty()
        val mac = Mac.getInstance("HmacSHA256")
        mac.init(SecretKeySpec(Base64.getUrlDecoder().decode(key), "HmacSHA256"))
        val right = base64(mac.doFinal("lorad-hello-1\n$host\n$nonce".toByteArray()))
        if (!MessageDigest.isEqual(proof.toByteArray(), right.toByteArray())) {
            throw NotLoradException("expected lorad at $host, found who lacks this pairing's key; pair again")
        }
    }

    /** The answer to its last byte and not beyond: what comes next is for OkHttp. */
    private fun readAnswer(socket: Socket): String {
        val silence = socket.soTimeout
        val end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(silence.toLong())
        val read = StringBuilder()
        var expected = MOST_BYTES
        while (read.length < expected) {
            val left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime()).toInt()
            if (left <= 0) throw SocketTimeoutException("expected a proof within $silence ms, found none")
            socket.soTimeout = left
            val byte = socket.getInputStream().read()
            if (byte < 0) throw EOFException("expected a proof, found the connection's end")
            read.append(byte.toChar())
            if (expected == MOST_BYTES && read.endsWith("\r\n\r\n")) {
                expected = read.length + (LENGTH.find(read)?.groupValues?.get(1)?.toInt() ?: 0)
            }
        }
        socket.soTimeout = silence
        return read.toString()
    }

    override fun createSocket(host: String, port: Int) = error("OkHttp connects its sockets itself")

    override fun createSocket(host: InetAddress, port: Int) = createSocket("", port)

    override fun createSocket(host: String, port: Int, from: InetAddress, fromPort: Int) =
        createSocket("", port)

    override fun createSocket(host: InetAddress, port: Int, from: InetAddress, fromPort: Int) =
        createSocket("", port)

    private companion object {
        const val MOST_BYTES = 4096
        val LENGTH = Regex("\r\ncontent-length: *([0-9]{1,3})\r\n", RegexOption.IGNORE_CASE)
        val PROOF = Regex("\"proof\" *: *\"([A-Za-z0-9_-]*)\"")
    }
}

private fun base64(bytes: ByteArray): String = Base64.getUrlEncoder().withoutPadding().encodeToString(bytes)

private fun randomBase64(size: Int): String = base64(ByteArray(size).also(SecureRandom()::nextBytes))

private fun pause(seconds: Double) = Thread.sleep((seconds * 1000).toLong())

private fun encoded(text: String): String = URLEncoder.encode(text, "UTF-8").replace("+", "%20")
